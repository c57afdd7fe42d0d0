import { type Address, type Cidr, parseAddress, parseCidr, specialAddressReason } from '../model/address.ts';
import { Field } from '../util/untrusted.ts';
import { type Decoded, decoding } from './objects/decoded.ts';
import { dnsSubdomain } from './objects/metadata.ts';

/** This node, as its Node object has it. */
export interface NodeStatus {
  readonly name: string;
  /** From the label `topology.kubernetes.io/zone`. */
  readonly zone: string | undefined;
  /** The internal ones, of both families, or else the external ones. */
  readonly addresses: readonly Address[];
  /** From which the pods of this node get their addresses. */
  readonly podCidrs: readonly Cidr[];
  /** The keys of `spec.taints`. */
  readonly taints: readonly string[];
  /** The object is gone, or about to go. */
  readonly isDeleted: boolean;
}

const ZONE_LABEL = 'topology.kubernetes.io/zone';

/** What the cluster autoscaler puts on a node that it is about to remove (its `utils/taints`). */
const TO_BE_DELETED_TAINT = 'ToBeDeletedByClusterAutoscaler';

/** Whether load balancers may go on sending to this node (upstream `pkg/proxy/healthcheck/proxy_health.go` NodeEligible). */
export function isEligible({ isDeleted, taints }: NodeStatus): boolean {
  return !isDeleted && !taints.includes(TO_BE_DELETED_TAINT);
}

export function nodeNameOf(object: Field): string {
  return dnsSubdomain(object.get('metadata').get('name'));
}

/** Reads a Node object. What is no address of a node is passed over: host names are listed among them. */
export function decodeNode(object: unknown): Decoded<NodeStatus> {
  return decoding((warnings) => {
    const node = Field.root(object);
    const metadata = node.get('metadata');
    const zone = metadata.get('labels').get(ZONE_LABEL).stringOr('');
    return {
      name: nodeNameOf(node),
      zone: zone === '' ? undefined : zone,
      addresses: addressesOf(node.get('status').get('addresses').items()),
      podCidrs: node
        .get('spec')
        .get('podCIDRs')
        .items()
        .flatMap(({ value }) => parseCidr(String(value)) ?? []),
      taints: warnings.keepValid(node.get('spec').get('taints').items(), (taint) => taint.get('key').string()),
      isDeleted: metadata.get('deletionTimestamp').isPresent,
    };
  });
}

function addressesOf(listed: readonly Field[]): readonly Address[] {
  const ofType = (type: string): Address[] =>
    listed.flatMap(({ value }) => {
      const entry = value as { type?: unknown; address?: unknown } | undefined;
      if (entry?.type !== type || typeof entry.address !== 'string') return [];
      const address = parseAddress(entry.address);
      return address === undefined || specialAddressReason(address) !== undefined ? [] : [address];
    });
  const internal = ofType('InternalIP');
  return internal.length > 0 ? internal : ofType('ExternalIP');
}
