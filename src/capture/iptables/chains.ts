import { hash } from 'node:crypto';
import type { Table } from './iptables.ts';

/*
 * Upstream's names and comments (kubernetes `pkg/proxy/userspace/proxier.go`): tools and people know them, and
 * `--cleanup` of either program must find the other's.
 *
 *   packets from pods and from outside:  nat PREROUTING → KUBE-PORTALS-CONTAINER, …, KUBE-NODEPORT-CONTAINER
 *   packets of the node's own processes: nat OUTPUT     → KUBE-PORTALS-HOST, …,      KUBE-NODEPORT-HOST
 *   packets that NAT sent to a local port:   filter INPUT → KUBE-NODEPORT-NON-LOCAL
 *
 * Three chains are not upstream's (docs/adr/0010, 0016):
 *
 *   clients that connect to a local port itself:     KUBE-NODEPORT-CONTAINER → KUBE-LOCAL-PORTS
 *   packets that NAT sent to be rejected or dropped: filter INPUT → KUBE-DOORS
 *   packets for a program of the node:               KUBE-DOORS → KUBE-LET-IN (health checks, docs/adr/0019)
 *
 * And one for addresses that only cluster IPs may have, behind the rules of other programs (docs/adr/0044):
 *
 *   what no Service has: nat PREROUTING, OUTPUT → KUBE-UNASSIGNED
 */
export const PORTALS_CONTAINER = 'KUBE-PORTALS-CONTAINER';
export const PORTALS_HOST = 'KUBE-PORTALS-HOST';
const NODEPORT_CONTAINER = 'KUBE-NODEPORT-CONTAINER';
export const NODEPORT_HOST = 'KUBE-NODEPORT-HOST';
const NODEPORT_NON_LOCAL = 'KUBE-NODEPORT-NON-LOCAL';
const LOCAL_PORTS = 'KUBE-LOCAL-PORTS';
export const DOORS = 'KUBE-DOORS';
export const LET_IN = 'KUBE-LET-IN';
export const UNASSIGNED = 'KUBE-UNASSIGNED';

/** For probing rules. No packet enters. Exists only during a probe. */
export const PROBE_CHAIN = 'KUBE-USERSPACE-PROBE';

/** Remembers local ports that served a Service recently. No packet enters. */
export const RETIRED_CHAIN = 'KUBE-USERSPACE-RETIRED';

/** The chains that always exist, and that lead to the rules of Service ports. */
export const ROOT_CHAINS: Readonly<Record<Table, readonly string[]>> = {
  nat: [PORTALS_CONTAINER, PORTALS_HOST, NODEPORT_CONTAINER, NODEPORT_HOST, LOCAL_PORTS],
  filter: [NODEPORT_NON_LOCAL, LET_IN],
  mangle: [],
};

/**
 * The trees of rules, each with the root chains that lead to all of it. Nearly all rules of portals are the same for
 * pods and for the node's own processes: those are in one tree for both, which takes a third off the rules of nat and
 * off the time of a change with the legacy tools. The names of bucket chains have these letters.
 */
export const TREES = {
  PB: [PORTALS_CONTAINER, PORTALS_HOST],
  PC: [PORTALS_CONTAINER],
  PH: [PORTALS_HOST],
  NC: [NODEPORT_CONTAINER],
  NH: [NODEPORT_HOST],
  LP: [LOCAL_PORTS],
  NL: [NODEPORT_NON_LOCAL],
  LI: [LET_IN],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type TreeName = keyof typeof TREES;

export const TREE_NAMES = Object.keys(TREES) as readonly TreeName[];

export function tableOf(tree: TreeName): Table {
  return tree === 'NL' || tree === 'LI' ? 'filter' : 'nat';
}

/**
 * Upstream accepts every client of a local port. The conditions are not in the jump, because kube-proxy recognises it
 * by its text.
 */
const LET_IN_CONDITIONS = ['-m conntrack ! --ctstate NEW -j RETURN', '-m conntrack ! --ctstate DNAT -j RETURN'];

/** Comments the rule that leaves the proxy's own connections alone. `explain` recognises it. */
export const OWN_CONNECTIONS = 'connections of the proxy to endpoints';

/** The first rules of a root chain. They leave the proxy's own connections alone (docs/adr/0019). */
export function firstInRoot(root: string, connectionMark: number | undefined): readonly string[] {
  if (root === NODEPORT_NON_LOCAL) return LET_IN_CONDITIONS;
  if (connectionMark === undefined || (root !== PORTALS_HOST && root !== NODEPORT_HOST)) return [];
  const mark = `0x${connectionMark.toString(16)}`;
  return [`-m comment --comment "${OWN_CONNECTIONS}" -m mark --mark ${mark}/${mark} -j RETURN`];
}

export const LAST_IN_ROOT: ReadonlyMap<string, string> = new Map([[NODEPORT_CONTAINER, `-j ${LOCAL_PORTS}`]]);

/** Whether packets come from this root chain to `chain`. */
export function isBelow(root: string, chain: string): boolean {
  const roots: readonly string[] = TREES[/^KUBE-USP-([A-Z]{2})-/.exec(chain)?.[1] as TreeName] ?? [chain];
  return roots.includes(root);
}

/** The kernel limits names to 28 bytes. */
const MAX_PREFIX = 16;
const BUCKET = /^KUBE-USP-(?:PB|PC|PH|NC|NH|NL|LP|LI)-(?:[0-9a-f]{1,16}|(?:[0-9a-f]{8})?[tu][0-9a-f]{0,4}|h[\w-]{15})$/;

/**
 * The chain for the destinations below a prefix of a {@link DestinationKey}. IPv6 prefixes are hashed to 90 bits, so
 * that nobody can choose external IPs whose chains collide.
 */
export function bucketChain(tree: TreeName, prefix: string): string {
  const suffix = prefix.length <= MAX_PREFIX ? prefix : `h${hash('sha256', prefix, 'base64url').slice(0, 15)}`;
  return `KUBE-USP-${tree}-${suffix}`;
}

/** Of version 0.1.0, for Services with very many rules. */
const FORMER = /^KUBE-USP-(?:S(?:SR|CP|HP|DR)-[\w-]{15}|P[CH]-(?:[0-9a-f]{8})?[sz])$/;

/** This program may rewrite and delete these chains. */
export function isOurs(table: Table, chain: string): boolean {
  return ROOT_CHAINS[table].includes(chain) || OTHER_CHAINS.includes(chain) || BUCKET.test(chain) || FORMER.test(chain);
}

const OTHER_CHAINS: readonly string[] = [DOORS, UNASSIGNED, PROBE_CHAIN, RETIRED_CHAIN];

/** A rule in a built-in chain that jumps to one of ours. */
export interface Jump {
  readonly table: Table;
  readonly from: string;
  readonly to: string;
  /** Among all rules of `from`. Jumps of one place stand in the order of {@link JUMPS}. */
  readonly place: 'first' | 'last';
  /** Identifies the jump where the rest of it cannot be read. */
  readonly comment: string;
  readonly spec: string;
}

function jump(route: Omit<Jump, 'spec' | 'comment'>, comment: string, match = ''): Jump {
  return { ...route, comment, spec: `${match}-m comment --comment "${comment}" -j ${route.to}` };
}

function portals(from: string, to: string): Jump {
  const comment = 'handle ClusterIPs; NOTE: this must be before the NodePort rules';
  return jump({ table: 'nat', from, to, place: 'first' }, comment);
}

function unassigned(from: string): Jump {
  return jump({ table: 'nat', from, to: UNASSIGNED, place: 'last' }, 'drop what no Service has');
}

function nodePorts(from: string, to: string): Jump {
  const comment = 'handle service NodePorts; NOTE: this must be the last rule in the chain';
  return jump({ table: 'nat', from, to, place: 'last' }, comment, '-m addrtype --dst-type LOCAL ');
}

/*
 * Places matter, because the first NAT rule that matches decides. A hostPort rule ahead of the portals takes a
 * Service's traffic (CVE-2019-9946: the CNI portmap plugin prepended its own). A NodePort rule ahead of other programs'
 * rules would take their traffic. A default-deny rule ahead of the filter jumps would drop NodePort traffic after NAT.
 */
export const JUMPS: readonly Jump[] = [
  portals('PREROUTING', PORTALS_CONTAINER),
  nodePorts('PREROUTING', NODEPORT_CONTAINER),
  portals('OUTPUT', PORTALS_HOST),
  nodePorts('OUTPUT', NODEPORT_HOST),
  jump(
    { table: 'filter', from: 'INPUT', to: DOORS, place: 'first' },
    'refuse or drop what no Service carries',
    '-m conntrack --ctstate NEW ',
  ),
  jump(
    { table: 'filter', from: 'INPUT', to: NODEPORT_NON_LOCAL, place: 'first' },
    'Ensure that non-local NodePort traffic can flow',
  ),
];

/** They come before {@link JUMPS} of the same place, and only where there is something to drop. */
const UNASSIGNED_JUMPS: readonly Jump[] = [unassigned('PREROUTING'), unassigned('OUTPUT')];

export function jumpsOf(table: Table, { dropsUnassigned }: { readonly dropsUnassigned: boolean }): readonly Jump[] {
  return [...(dropsUnassigned ? UNASSIGNED_JUMPS : []), ...JUMPS].filter((jump) => jump.table === table);
}

/** Begins a rule in a table that iptables cannot print, and names its handle. There is no such match. */
export const HANDLE = '-m nft --handle (\\d+)';

export function withHandle(spec: string, handle: bigint): string {
  return `-m nft --handle ${handle} ${spec}`;
}

const OWN_JUMP = new RegExp(`^${HANDLE} `);
const JUMP_SPECS: ReadonlySet<string> = new Set([...UNASSIGNED_JUMPS, ...JUMPS].map(({ spec }) => spec));

/** Removes the handle from a jump of ours. */
export function plainSpec(spec: string): string {
  const plain = spec.replace(OWN_JUMP, '');
  return JUMP_SPECS.has(plain) ? plain : spec;
}

/*
 * kube-proxy's in its modes iptables and ipvs (kubernetes `pkg/proxy/iptables` and `pkg/proxy/ipvs`, CleanupLeftovers).
 * Not kubelet's KUBE-MARK-MASQ (needed before 1.28), KUBE-MARK-DROP, KUBE-FIREWALL and KUBE-KUBELET-CANARY.
 */
const KUBE_PROXY_CHAINS: Readonly<Record<Table, readonly string[]>> = {
  nat: ['SERVICES', 'NODEPORTS', 'POSTROUTING', 'NODE-PORT', 'LOAD-BALANCER', 'FIRE-WALL', 'PROXY-CANARY'],
  filter: [
    ...['SERVICES', 'EXTERNAL-SERVICES', 'NODEPORTS', 'FORWARD', 'PROXY-FIREWALL', 'NODE-PORT'],
    ...['SOURCE-RANGES-FIREWALL', 'IPVS-FILTER', 'IPVS-OUT-FILTER', 'PROXY-CANARY'],
  ],
  mangle: ['PROXY-CANARY'],
};

/** One for each Service port or endpoint, with a hash of it in base 32. */
const KUBE_PROXY_SERVICE_CHAIN = /^KUBE-(?:SVC|SVL|SEP|FW|EXT|XLB)-[A-Z2-7]{16}$/;

export function isKubeProxys(table: Table, chain: string): boolean {
  const isFixed = KUBE_PROXY_CHAINS[table].some((name) => chain === `KUBE-${name}`);
  return isFixed || (table === 'nat' && KUBE_PROXY_SERVICE_CHAIN.test(chain));
}
