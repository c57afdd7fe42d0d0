import type { Address, Cidr, IpFamily } from './address.ts';
import { clientSets, destinations, type EndpointSetName, type ServicePort } from './service-port.ts';

/** Whose address endpoints see: the client's wherever kube-proxy keeps it, or the node's always. */
export type ClientAddress = 'preserve' | 'node';

/**
 * For which destinations a client's address is kept. `internal`: the Service's cluster IPs; `external`: its NodePort,
 * external IPs and load balancer IPs.
 */
export type KeptFor = 'all' | 'internal' | 'external' | 'none';

/**
 * Which clients of one listener endpoints see by their own address (docs/adr/0023). Never the node's own programs, and
 * never a client that is the endpoint itself.
 */
export interface KeptAddresses {
  readonly pods: KeptFor;
  /** Clients that are not pods. */
  readonly others: KeptFor;
  /** The Service's: every other destination is external. */
  readonly clusterIPs: readonly Address[];
}

/** What tells the clients of this node apart. */
export interface ClientFacts {
  /** Where pods are. Absent: unknown, and every client counts as a pod, as with kube-proxy. */
  readonly podCidrs?: readonly Cidr[];
  /** Of this node: clients with these are its own programs. */
  readonly nodeAddresses: readonly Address[];
  /**
   * Sources that policy routing sends a way of their own, such as pods on a further network interface of a cloud's
   * machine. Our connections leave by the node's way, where the network would drop packets with such a source.
   * Absent: none.
   */
  readonly routedApart?: readonly Cidr[];
  /** The families in which this node's kernel can keep addresses now. */
  readonly families: readonly IpFamily[];
}

/** What a node keeps where a Service does not say otherwise. */
export interface ClientAddressPolicy {
  readonly clientAddress: ClientAddress;
  /** kube-proxy's: endpoints see the node behind cluster IPs, whatever a Service says. */
  readonly masqueradeAll: boolean;
}

/**
 * As kube-proxy's rules (upstream `pkg/proxy/iptables/proxier.go` syncProxyRules): traffic to a cluster IP keeps its
 * source unless it is not a pod's; traffic to other addresses keeps it under the policy Local, and is masqueraded under
 * Cluster. `undefined`: nobody's address is kept.
 */
export function keptAddresses(
  servicePort: ServicePort,
  set: EndpointSetName,
  { clientAddress, masqueradeAll }: ClientAddressPolicy,
): KeptAddresses | undefined {
  const { clusterIPs, options } = servicePort;
  if ((options?.clientAddress ?? clientAddress) === 'node') return undefined;
  const { internal, external } = clientSets(servicePort);
  const hasExternal = destinations(servicePort).some(({ kind }) => kind !== 'ClusterIP');
  const comesHere = { internal: internal.pods === set, external: hasExternal && Object.values(external).includes(set) };
  const traffic = (['internal', 'external'] as const).filter((kind) => comesHere[kind]);
  const keptFor = (isKept: Readonly<Record<(typeof traffic)[number], boolean>>): KeptFor => {
    const kept = traffic.filter((kind) => isKept[kind]);
    return kept.length === traffic.length ? 'all' : (kept[0] ?? 'none');
  };
  const isLocal = external.others === 'local';
  const pods = keptFor({ internal: !masqueradeAll, external: isLocal });
  const others = keptFor({ internal: false, external: isLocal && set === 'local' });
  return pods === 'none' && others === 'none' ? undefined : { pods, others, clusterIPs };
}
