import { isDeepStrictEqual } from 'node:util';
import type { Address, Cidr } from '../model/address.ts';
import type { ServicePortName } from '../model/service.ts';
import { type EndpointSetName, type ServicePort, verdictOf } from '../model/service-port.ts';
import { DROP_PORT, REJECT_PORT } from './chains.ts';

/** A Service port and the local ports of its listeners. */
export interface Portal {
  readonly servicePort: ServicePort;
  readonly localPort: number;
  /** The listener of the endpoint set `servicePort.local`, where there is one. */
  readonly localSetPort?: number;
}

/** What changed among portals since the last delta was taken. A name is in one of the two lists, once. */
export interface PortalDelta {
  /** New, or with other rules than before. */
  readonly upserted: readonly Portal[];
  readonly removed: readonly ServicePortName[];
}

interface LocalPort {
  readonly port: number;
  readonly set: EndpointSetName;
}

/** Each local port of a portal, with the endpoint set that it serves. */
export function localPortsOf({ localPort, localSetPort }: Portal): readonly LocalPort[] {
  const own: LocalPort = { port: localPort, set: 'own' };
  return localSetPort === undefined ? [own] : [own, { port: localSetPort, set: 'local' }];
}

/** Where NAT sends a packet: to a listener of the Service port, or to a port that rejects or drops it. */
export type Target =
  | { readonly kind: 'listener'; readonly port: number; readonly set: EndpointSetName }
  | { readonly kind: 'refusal'; readonly port: typeof REJECT_PORT | typeof DROP_PORT };

/** The target of clients that this endpoint set serves. */
export function targetOf({ servicePort, localPort, localSetPort }: Portal, set: EndpointSetName): Target {
  const [endpoints, port] = set === 'own' ? [servicePort, localPort] : [servicePort.local, localSetPort];
  const verdict = endpoints === undefined ? 'drop' : verdictOf(endpoints);
  if (verdict === 'reject') return { kind: 'refusal', port: REJECT_PORT };
  // While the listener is not open yet, the client retries.
  return verdict === 'drop' || port === undefined
    ? { kind: 'refusal', port: DROP_PORT }
    : { kind: 'listener', port, set };
}

/**
 * Strongest first: when two Service ports claim the same address and port, the first kind gets it. The API server hands
 * out ClusterIPs and a controller sets load balancer IPs. Any user may write an external IP, and could take other
 * Services' traffic with it (CVE-2020-8554).
 */
export const DESTINATION_KINDS = ['ClusterIP', 'load-balancer IP', 'external IP', 'NodePort'] as const;

/** The endpoint set that serves each kind of clients (docs/adr/0009). */
export interface ClientSets {
  /** Processes of this node. */
  readonly node: EndpointSetName;
  readonly pods: EndpointSetName;
  /** All others. Where pods are not known, they count as these. */
  readonly others: EndpointSetName;
}

/** An address and port on which a Service port answers. */
export interface Destination {
  readonly kind: (typeof DESTINATION_KINDS)[number];
  /** Absent for a NodePort: every NodePort address of this node. */
  readonly address?: Address;
  readonly port: number;
  readonly sets: ClientSets;
  /** The only clients that are accepted. Absent: everyone. Like upstream's, only load balancer IPs have them. */
  readonly sourceRanges?: readonly Cidr[];
}

/** The endpoint sets of traffic to cluster IPs (`internal`), and to all other destinations (`external`). */
export function clientSets({ local }: ServicePort): { readonly internal: ClientSets; readonly external: ClientSets } {
  const internal = local?.internal ? 'local' : 'own';
  return {
    internal: { node: internal, pods: internal, others: internal },
    external: { node: 'own', pods: 'own', others: local?.external ? 'local' : 'own' },
  };
}

/** Every address and port on which a Service port answers, the strongest claim first. Of all address families. */
export function destinations(servicePort: ServicePort): readonly Destination[] {
  const { clusterIPs, loadBalancerIPs, externalIPs, port, nodePort, loadBalancerSourceRanges } = servicePort;
  const { internal, external } = clientSets(servicePort);
  const balanced = { sets: external, ...(loadBalancerSourceRanges && { sourceRanges: loadBalancerSourceRanges }) };
  return [
    ...clusterIPs.map((address) => ({ kind: 'ClusterIP', address, port, sets: internal }) as const),
    ...loadBalancerIPs.map((address) => ({ kind: 'load-balancer IP', address, port, ...balanced }) as const),
    ...externalIPs.map((address) => ({ kind: 'external IP', address, port, sets: external }) as const),
    ...(nodePort === 0 ? [] : [{ kind: 'NodePort', port: nodePort, sets: external } as const]),
  ];
}

/** Whether both make the same rules. Of endpoints, only whether there are any matters; affinity never does. */
export function samePortal(a: Portal, b: Portal): boolean {
  return isDeepStrictEqual(ruleInputs(a), ruleInputs(b));
}

function ruleInputs({ servicePort, ...localPorts }: Portal) {
  const { endpoints, draining, onlyElsewhere, affinity, local, ...definition } = servicePort;
  const localSet = local && { internal: local.internal, external: local.external, verdict: verdictOf(local) };
  return { ...definition, ...localPorts, verdict: verdictOf(servicePort), localSet };
}
