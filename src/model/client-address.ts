import type { Address, Cidr, IpFamily } from './address.ts';
import type { EndpointSetName, ServicePort } from './service-port.ts';

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
  /** The families in which this node's kernel can keep addresses now. */
  readonly families: readonly IpFamily[];
}

/**
 * As kube-proxy's rules (upstream `pkg/proxy/iptables/proxier.go` syncProxyRules): traffic to a cluster IP keeps its
 * source unless it is not a pod's; traffic to other addresses keeps it under the policy Local, and is masqueraded under
 * Cluster. `undefined`: nobody's address is kept.
 */
export function keptAddresses(
  { clusterIPs, local, nodePort, externalIPs, loadBalancerIPs }: ServicePort,
  set: EndpointSetName,
): KeptAddresses | undefined {
  if (set === 'local') {
    // Rules send only what has the policy Local here; under it, external traffic of pods goes to the other set.
    if (!local?.external) return { pods: 'all', others: 'none', clusterIPs };
    return { pods: 'all', others: local.internal ? 'external' : 'all', clusterIPs };
  }
  const isExternal = nodePort !== 0 || externalIPs.length > 0 || loadBalancerIPs.length > 0;
  if (!isExternal || local?.external) return { pods: 'all', others: 'none', clusterIPs };
  return local?.internal ? undefined : { pods: 'internal', others: 'none', clusterIPs };
}
