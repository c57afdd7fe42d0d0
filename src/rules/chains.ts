import type { Table } from '../contracts/iptables.ts';

/*
 * Upstream's names and comments (kubernetes `pkg/proxy/userspace/proxier.go`), to the letter: tools and people know
 * them, a kube-proxy that ran here before left them, and `--cleanup` of either program must find the other's.
 *
 *   packets from pods and from outside:  nat PREROUTING → KUBE-PORTALS-CONTAINER, …, KUBE-NODEPORT-CONTAINER
 *   packets of the node's own processes: nat OUTPUT     → KUBE-PORTALS-HOST, …,      KUBE-NODEPORT-HOST
 *   what NAT has sent to a proxy port:   filter INPUT   → KUBE-NODEPORT-NON-LOCAL
 */
export const PORTALS_CONTAINER = 'KUBE-PORTALS-CONTAINER';
export const PORTALS_HOST = 'KUBE-PORTALS-HOST';
export const NODEPORT_CONTAINER = 'KUBE-NODEPORT-CONTAINER';
export const NODEPORT_HOST = 'KUBE-NODEPORT-HOST';
export const NODEPORT_NON_LOCAL = 'KUBE-NODEPORT-NON-LOCAL';

/** Where rules are tried out: no packet ever comes here. Exists only while that lasts. */
export const PROBE_CHAIN = 'KUBE-USERSPACE-PROBE';

/** The chains that belong to this program: whatever stands in them is ours to rewrite. */
export const CHAINS: Readonly<Record<Table, readonly string[]>> = {
  nat: [PORTALS_CONTAINER, PORTALS_HOST, NODEPORT_CONTAINER, NODEPORT_HOST],
  filter: [NODEPORT_NON_LOCAL],
};

/** A rule in a built-in chain that leads to one of ours. */
export interface Jump {
  readonly table: Table;
  readonly from: string;
  readonly to: string;
  /** Where it must stand among all rules of `from`, other programs' included. */
  readonly place: 'first' | 'last';
  readonly spec: string;
}

function portals(from: string, to: string): Jump {
  return {
    table: 'nat',
    from,
    to,
    place: 'first',
    spec: `-m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j ${to}`,
  };
}

function nodePorts(from: string, to: string): Jump {
  return {
    table: 'nat',
    from,
    to,
    place: 'last',
    spec: `-m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j ${to}`,
  };
}

/*
 * The places are asserted, not only the presence, because the first NAT rule that matches decides. A hostPort rule
 * ahead of the portals takes a Service's traffic away (CVE-2019-9946: the CNI portmap plugin prepended its own), and a
 * NodePort rule ahead of anything else takes traffic that is none of ours, as it matches every local address. A
 * default-deny rule ahead of the filter jump would drop NodePort traffic that has already been redirected.
 */
export const JUMPS: readonly Jump[] = [
  portals('PREROUTING', PORTALS_CONTAINER),
  nodePorts('PREROUTING', NODEPORT_CONTAINER),
  portals('OUTPUT', PORTALS_HOST),
  nodePorts('OUTPUT', NODEPORT_HOST),
  {
    table: 'filter',
    from: 'INPUT',
    to: NODEPORT_NON_LOCAL,
    place: 'first',
    spec: `-m comment --comment "Ensure that non-local NodePort traffic can flow" -j ${NODEPORT_NON_LOCAL}`,
  },
];
