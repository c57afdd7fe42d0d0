import { hostname } from 'node:os';
import { type Address, type Cidr, parseAddress, parseCidr, specialAddressReason } from '../model/address.ts';
import { Field } from '../util/untrusted.ts';
import { type Decoded, decoding } from './objects/decoded.ts';
import { dnsSubdomain } from './objects/fields.ts';
import { Reflector, type ReflectorOptions, type Resource } from './reflector.ts';

/**
 * The name of the Node object: `--hostname-override`, or the host name as the kubelet spells it (`pkg/util/node`
 * GetHostname).
 */
export function nodeName(override: string | undefined): string {
  return (override || hostname()).trim().toLowerCase();
}

/** A kubelet may be registering the node at this moment. Upstream waits as long (`pkg/util/node` GetNodeIP). */
const ADDRESS_PATIENCE_MS = 31_000;

/**
 * Watches the Node object of this node, and no other. Reports the first state and every real difference; a Node that is
 * gone keeps its last state, with `isDeleted`. Resolves only after the abort; never rejects.
 *
 * A watch that the server forbids is retried, and one line in the log says so. Until it allows the watch, the Node is
 * read once: the role `system:node-proxier` of old releases may get nodes, but not watch them. The watch says nothing
 * about how fresh Services are, so it does not count for the state of the connection.
 */
export async function watchNode({
  name,
  onChange,
  signal,
  ...options
}: Omit<ReflectorOptions<NodeStatus>, 'resource' | 'sink'> & {
  /** Of the Node object. */
  readonly name: string;
  readonly onChange: (status: NodeStatus) => void;
  readonly signal: AbortSignal;
}): Promise<void> {
  const { transport, clock, log } = options;
  let last: NodeStatus | undefined;
  let isLost = false;
  const changed = (status: NodeStatus) => {
    last = status;
    onChange(status);
  };
  const readOnce = async () => {
    const object = await transport.get(`/api/v1/nodes/${encodeURIComponent(name)}`, signal).catch(() => undefined);
    const node = decodeNode(object);
    if (last === undefined && node.status === 'ok' && !signal.aborted) changed(node.value);
  };
  const reflector = new Reflector<NodeStatus>({
    ...options,
    resource: nodeResource(name),
    sink: {
      changed: (changes) => {
        for (const { key, value } of changes) {
          if (key !== name) continue;
          const status = value ?? (last && { ...last, isDeleted: true });
          if (status !== undefined) changed(status);
        }
      },
      following: () => {
        isLost = false;
      },
      lost: (err) => {
        if (isLost) return;
        isLost = true;
        log.warn('The Node object of this node cannot be watched; its last known state stands', { node: name, err });
        if (last === undefined) void readOnce();
      },
    },
  });
  const patience = clock.after(ADDRESS_PATIENCE_MS, () => {
    if (last === undefined || last.addresses.length === 0) {
      log.warn('The Node object of this node gives no address', { node: name });
    }
  });
  await reflector.run(signal);
  patience.cancel();
}

function nodeResource(name: string): Resource<NodeStatus> {
  return {
    kind: 'Node',
    path: '/api/v1/nodes',
    selectors: { fieldSelector: `metadata.name=${name}` },
    absentAt: [],
    identify: (object) => nodeNameOf(Field.root(object)),
    decode: decodeNode,
  };
}

/** This node, as its Node object describes it. */
export interface NodeStatus {
  readonly name: string;
  /** From the label `topology.kubernetes.io/zone`. */
  readonly zone: string | undefined;
  /** The internal ones, of both families, or else the external ones. */
  readonly addresses: readonly Address[];
  /** The blocks from which the pods of this node get their addresses. */
  readonly podCidrs: readonly Cidr[];
  /** The keys of `spec.taints`. */
  readonly taints: readonly string[];
  /** The object is gone, or about to go. */
  readonly isDeleted: boolean;
}

const ZONE_LABEL = 'topology.kubernetes.io/zone';

/** What the cluster autoscaler puts on a node that it is about to remove (its `utils/taints`). */
const TO_BE_DELETED_TAINT = 'ToBeDeletedByClusterAutoscaler';

/**
 * Whether load balancers may still send to this node (upstream `pkg/proxy/healthcheck/proxy_health.go` NodeEligible).
 */
export function isEligible({ isDeleted, taints }: NodeStatus): boolean {
  return !isDeleted && !taints.includes(TO_BE_DELETED_TAINT);
}

function nodeNameOf(object: Field): string {
  return dnsSubdomain(object.get('metadata').get('name'));
}

/** Reads a Node object. Entries that are no address of a node are ignored: the list has host names, too. */
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

/** A Node object that {@link decodeNode} reads as this. */
export function encodeNode({ name, zone, addresses, podCidrs, taints, isDeleted }: NodeStatus): object {
  return {
    kind: 'Node',
    metadata: {
      name,
      ...(zone !== undefined && { labels: { [ZONE_LABEL]: zone } }),
      ...(isDeleted && { deletionTimestamp: 'gone' }),
    },
    spec: {
      podCIDRs: podCidrs.map(({ network, prefixLength }) => `${network}/${prefixLength}`),
      taints: taints.map((key) => ({ key })),
    },
    status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
  };
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
