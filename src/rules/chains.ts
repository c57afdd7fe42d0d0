import { hash } from 'node:crypto';
import type { Table } from '../model/iptables.ts';

/*
 * Upstream's names and comments (kubernetes `pkg/proxy/userspace/proxier.go`), to the letter: tools and people know
 * them, a kube-proxy that ran here before left them, and `--cleanup` of either program must find the other's.
 *
 *   packets from pods and from outside:  nat PREROUTING → KUBE-PORTALS-CONTAINER, …, KUBE-NODEPORT-CONTAINER
 *   packets of the node's own processes: nat OUTPUT     → KUBE-PORTALS-HOST, …,      KUBE-NODEPORT-HOST
 *   what NAT has sent to a proxy port:   filter INPUT   → KUBE-NODEPORT-NON-LOCAL
 *
 * Three chains are not upstream's (docs/adr/0010, 0016):
 *
 *   what asked for a proxy port itself:  KUBE-NODEPORT-CONTAINER → KUBE-LOCAL-PORTS
 *   what NAT has sent to a door:         filter INPUT            → KUBE-DOORS
 *   what asks a program of the node:     KUBE-DOORS              → KUBE-LET-IN (health checks, docs/adr/0019)
 */
export const PORTALS_CONTAINER = 'KUBE-PORTALS-CONTAINER';
export const PORTALS_HOST = 'KUBE-PORTALS-HOST';
export const NODEPORT_CONTAINER = 'KUBE-NODEPORT-CONTAINER';
export const NODEPORT_HOST = 'KUBE-NODEPORT-HOST';
export const NODEPORT_NON_LOCAL = 'KUBE-NODEPORT-NON-LOCAL';
export const LOCAL_PORTS = 'KUBE-LOCAL-PORTS';
export const DOORS = 'KUBE-DOORS';
export const LET_IN = 'KUBE-LET-IN';

/** Where rules are tried out: no packet ever comes here. Exists only while that lasts. */
export const PROBE_CHAIN = 'KUBE-USERSPACE-PROBE';

/** Remembers local ports that carried a Service not long ago: no packet ever comes here. */
export const RETIRED_CHAIN = 'KUBE-USERSPACE-RETIRED';

/** The chains that are always there, and that hold the rules of Service ports. */
export const ROOT_CHAINS: Readonly<Record<Table, readonly string[]>> = {
  nat: [PORTALS_CONTAINER, PORTALS_HOST, NODEPORT_CONTAINER, NODEPORT_HOST, LOCAL_PORTS],
  filter: [NODEPORT_NON_LOCAL, LET_IN],
  mangle: [],
};

/**
 * Upstream lets in whoever asks for a proxy port. In the jump, these would make it another one than upstream's, which
 * kube-proxy and earlier versions know by its text.
 */
const LET_IN_CONDITIONS = ['-m conntrack ! --ctstate NEW -j RETURN', '-m conntrack ! --ctstate DNAT -j RETURN'];

/** By this comment people, and `explain`, know the rule that spares what the proxy itself sends to endpoints. */
export const OWN_CONNECTIONS = 'connections of the proxy to endpoints';

/**
 * What stands in a root chain before all else: what the proxy itself sends goes where it is sent, also to a NodePort's
 * number at an address of this node (docs/adr/0019).
 */
export function firstInRoot(root: string, connectionMark: number | undefined): readonly string[] {
  if (root === NODEPORT_NON_LOCAL) return LET_IN_CONDITIONS;
  if (connectionMark === undefined || (root !== PORTALS_HOST && root !== NODEPORT_HOST)) return [];
  const mark = `0x${connectionMark.toString(16)}`;
  return [`-m comment --comment "${OWN_CONNECTIONS}" -m mark --mark ${mark}/${mark} -j RETURN`];
}

/** What stands in a root chain after all else, whatever Services there are. */
export const LAST_IN_ROOT: ReadonlyMap<string, string> = new Map([[NODEPORT_CONTAINER, `-j ${LOCAL_PORTS}`]]);

/** A root chain whose rules became too many leads to bucket chains of this name, with a bucket's prefix at the end. */
const BUCKETS: ReadonlyMap<string, string> = new Map([
  [PORTALS_CONTAINER, 'KUBE-USP-PC-'],
  [PORTALS_HOST, 'KUBE-USP-PH-'],
  [NODEPORT_CONTAINER, 'KUBE-USP-NC-'],
  [NODEPORT_HOST, 'KUBE-USP-NH-'],
  [NODEPORT_NON_LOCAL, 'KUBE-USP-NL-'],
  [LOCAL_PORTS, 'KUBE-USP-LP-'],
  [LET_IN, 'KUBE-USP-LI-'],
]);

/** The kernel's names have 28 bytes. */
const MAX_PREFIX = 16;
const BUCKET = /^KUBE-USP-(?:PC|PH|NC|NH|NL|LP|LI)-(?:[0-9a-f]{1,16}|(?:[0-9a-f]{8})?[tu][0-9a-f]{0,4}|h[\w-]{15})$/;

/**
 * The chain for the destinations below `prefix` of a {@link DestinationKey}. Prefixes of IPv6 are longer than a name
 * may be and are hashed, with 90 bits, so that whoever writes external IPs cannot make two of them meet.
 */
export function bucketChain(root: string, prefix: string): string {
  const suffix = prefix.length <= MAX_PREFIX ? prefix : `h${hash('sha256', prefix, 'base64url').slice(0, 15)}`;
  return `${BUCKETS.get(root)}${suffix}`;
}

/**
 * Whether a chain belongs to this program, so that whatever stands in it is ours to rewrite, and it is ours to delete
 * when it is not wanted: an earlier run with other Services may have left it.
 */
export function isOurs(table: Table, chain: string): boolean {
  return ROOT_CHAINS[table].includes(chain) || OTHERS.has(chain) || BUCKET.test(chain);
}

const OTHERS: ReadonlySet<string> = new Set([DOORS, PROBE_CHAIN, RETIRED_CHAIN]);

/** A rule in a built-in chain that leads to one of ours. */
export interface Jump {
  readonly table: Table;
  readonly from: string;
  readonly to: string;
  /** Where it must stand among all rules of `from`, other programs' included; those of one place as {@link JUMPS} has them. */
  readonly place: 'first' | 'last';
  /** The words by which it is known where the rest of it cannot be read. */
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

function nodePorts(from: string, to: string): Jump {
  const comment = 'handle service NodePorts; NOTE: this must be the last rule in the chain';
  return jump({ table: 'nat', from, to, place: 'last' }, comment, '-m addrtype --dst-type LOCAL ');
}

/*
 * The places are asserted, not only the presence, because the first NAT rule that matches decides. A hostPort rule
 * ahead of the portals takes a Service's traffic away (CVE-2019-9946: the CNI portmap plugin prepended its own), and a
 * NodePort rule ahead of anything else takes traffic that is none of ours, as it matches every local address. A
 * default-deny rule ahead of the filter jumps would drop NodePort traffic that has already been redirected, and what is
 * to be refused.
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

/** Begins a rule that is named by its handle, in a table that iptables cannot print. There is no such match. */
export const HANDLE = '-m nft --handle (\\d+)';

export function withHandle(spec: string, handle: bigint): string {
  return `-m nft --handle ${handle} ${spec}`;
}

const OWN_JUMP = new RegExp(`^${HANDLE} `);
const JUMP_SPECS: ReadonlySet<string> = new Set(JUMPS.map(({ spec }) => spec));

/** A rule as iptables spells it, if it is a jump of ours that has a handle; any other as it is. */
export function plainSpec(spec: string): string {
  const plain = spec.replace(OWN_JUMP, '');
  return JUMP_SPECS.has(plain) ? plain : spec;
}
