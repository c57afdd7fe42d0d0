import { type Cidr, cidrContains, familyOf, type IpFamily, isWildcard } from '../../model/address.ts';
import type { InterfaceMatch, NodeFacts } from '../../model/capture.ts';
import { DROP_PORT, REJECT_PORT } from '../portal.ts';
import { SET_NAMES, type SetName, shapeOf } from './element.ts';

/** In family `ip`, and in `ip6`. Nobody else writes it. */
export const TABLE = 'kube-userspace-proxy';

/* Where packets go on that a condition has told apart. */
export const TO_PORTAL = 'to-portal';
export const TO_LOCAL = 'to-local';
export const TO_DROP = 'to-drop';

/** `ip` or `ip6`, which also begins the words for addresses of a packet. */
export function nftFamily(family: IpFamily): 'ip' | 'ip6' {
  return family === 'IPv4' ? 'ip' : 'ip6';
}

export interface TableFacts {
  readonly node: NodeFacts;
  /** As in `BackEndOptions`. */
  readonly connectionMark: number | undefined;
  /** See `Capture.dropUnassigned`. */
  readonly unassigned: readonly Cidr[];
}

/** Tells packets apart by where they come from. Its name says all of it, so claims with the same routes share one. */
export interface Condition {
  readonly chain: string;
  readonly rules: readonly ConditionRule[];
}

export interface ConditionRule {
  readonly source: Cidr | undefined;
  readonly inInterface: InterfaceMatch | undefined;
  /** A chain. */
  readonly to: string;
}

interface Chain {
  readonly name: string;
  /** Of a chain that packets enter by themselves. */
  readonly hook?: string;
  readonly rules: readonly string[];
}

/**
 * Priorities replace the places of jumps in iptables. The first NAT rule that matches decides, whosever it is: portals
 * come before all others (CVE-2019-9946), NodePorts after them. What is refused or let in comes before everybody's
 * filter, but after mangle (−150), where others may set the whole mark.
 */
const BEFORE_NAT = -105;
const BEHIND_NAT = -95;
export const BEFORE_FILTER = -10;

/** All chains but those of conditions. Only they depend on the node's addresses. */
export function staticChains({ node, connectionMark, unassigned }: TableFacts): readonly Chain[] {
  const { family, hostAddress, bindAddress } = node;
  const ip = nftFamily(family);
  const isBound = !isWildcard(bindAddress);
  const bracketed = isBound ? bindAddress : hostAddress;
  const to = `dnat to ${family === 'IPv4' ? bracketed : `[${bracketed}]`}`;
  // To an address of the node that the packet already has, so that replies use its route (docs/adr/0016).
  const toPort = isBound ? to : 'dnat to ';
  const at = `${ip} daddr . meta l4proto . th dport`;
  const port = 'meta l4proto . th dport';
  const known = 'meta l4proto { tcp, udp }';
  const networks = disjoint(node.nodePortCidrs.filter(({ network }) => familyOf(network) === family));
  const isAll = networks.length === 0 || networks.some(({ prefixLength }) => prefixLength === 0);
  const nodePort = isAll ? '' : `${ip} daddr { ${networks.map(cidrText).join(', ')} } `;
  const blocks = disjoint(unassigned).map(cidrText).join(', ');
  const drop = blocks === '' ? [] : [`${ip} daddr { ${blocks} } ${known} ${to}:${DROP_PORT}`];
  const bound = isBound ? `${ip} daddr ${bindAddress} ` : '';
  const mark = connectionMark === undefined ? undefined : `0x${connectionMark.toString(16)}`;
  const own = mark === undefined ? [] : [`meta mark & ${mark} == ${mark} return`];
  const letIn = (match: string) => (mark === undefined ? [] : [`${match} meta mark set meta mark | ${mark}`]);
  return [
    { name: TO_PORTAL, rules: [`${known} ${to}:${at} map @portals`, `${known} ${toPort}:${port} map @nodeports`] },
    {
      name: TO_LOCAL,
      rules: [`${known} ${to}:${at} map @portals-local`, `${known} ${toPort}:${port} map @nodeports-local`],
    },
    { name: TO_DROP, rules: [`${known} ${to}:${DROP_PORT}`] },
    {
      name: 'portals-in',
      hook: `nat hook prerouting priority ${BEFORE_NAT}`,
      rules: [`${at} vmap @conditions`, `${known} ${to}:${at} map @portals`],
    },
    {
      name: 'nodeports-in',
      hook: `nat hook prerouting priority ${BEHIND_NAT}`,
      rules: [
        ...drop,
        'fib daddr type != local return',
        `${at} @spared return`,
        `${nodePort}${port} vmap @nodeport-conditions`,
        `${nodePort}${known} ${toPort}:${port} map @nodeports`,
        `${bound}${known} ${port} @local-ports ${toPort}:${REJECT_PORT}`,
      ],
    },
    {
      name: 'portals-out',
      hook: `nat hook output priority ${BEFORE_NAT}`,
      rules: [...own, `${at} vmap @conditions-out`, `${known} ${to}:${at} map @portals`],
    },
    {
      name: 'nodeports-out',
      hook: `nat hook output priority ${BEHIND_NAT}`,
      rules: [
        ...own,
        ...drop,
        'fib daddr type != local return',
        `${at} @spared return`,
        `${nodePort}${known} ${to}:${port} map @nodeports`,
      ],
    },
    {
      name: 'input',
      hook: `filter hook input priority ${BEFORE_FILTER}`,
      rules: [
        'ct state != new accept',
        `ct status dnat udp dport ${REJECT_PORT} reject`,
        `ct status dnat ${known} th dport ${DROP_PORT} drop`,
        ...letIn(`ct status dnat tcp dport ${REJECT_PORT}`),
        ...letIn(`ct status dnat ${port} @local-ports`),
        ...letIn(`${port} @health-checks`),
        ...letIn(`${at} @let-in`),
      ],
    },
  ];
}

/** What one `nft -f` reads to make the table as it should be, without touching elements. */
export function tableText(facts: TableFacts, conditions: Iterable<Condition>): string {
  const family = nftFamily(facts.node.family);
  const chains = [...staticChains(facts), ...Array.from(conditions, conditionChain(facts.node.family))];
  const lines = [
    `table ${family} ${TABLE} {`,
    '  comment "of kube-userspace-proxy, which repairs it: do not edit"',
    ...SET_NAMES.map((name) => `  ${setText(name, facts.node.family)}`),
    ...chains.map(({ name, hook }) => `  chain ${name} {${hook === undefined ? '' : ` type ${hook};`} }`),
    '}',
    ...chains.map(({ name }) => `flush chain ${family} ${TABLE} ${name}`),
    ...chainRules(chains, family),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

/** Removes the table; then the elements are gone, too. */
export function removalText(family: IpFamily): string {
  const table = `${nftFamily(family)} ${TABLE}`;
  // Declared first, because deleting what is not there is an error.
  return `table ${table}\ndelete table ${table}\n`;
}

/** Adds chains of conditions, and deletes some to which no element leads any more. */
export function conditionsText(family: IpFamily, added: readonly Condition[], deleted: readonly string[]): string {
  const table = `${nftFamily(family)} ${TABLE}`;
  const chains = added.map(conditionChain(family));
  return [
    ...deleted.map((name) => `delete chain ${table} ${name}`),
    ...chains.flatMap(({ name }) => [`add chain ${table} ${name}`, `flush chain ${table} ${name}`]),
    ...chainRules(chains, nftFamily(family)),
  ]
    .map((line) => `${line}\n`)
    .join('');
}

function chainRules(chains: readonly Chain[], family: 'ip' | 'ip6'): readonly string[] {
  return chains.flatMap(({ name, rules }) => rules.map((rule) => `add rule ${family} ${TABLE} ${name} ${rule}`));
}

function setText(name: SetName, family: IpFamily): string {
  const { hasAddress, data, expires } = shapeOf(name);
  const address = hasAddress ? `${family === 'IPv4' ? 'ipv4_addr' : 'ipv6_addr'} . ` : '';
  const value = data === undefined ? '' : ` : ${data === 'port' ? 'inet_service' : 'verdict'}`;
  const flags = expires ? ' flags timeout;' : '';
  return `${data === undefined ? 'set' : 'map'} ${name} { type ${address}inet_proto . inet_service${value};${flags} }`;
}

function conditionChain(family: IpFamily): (condition: Condition) => Chain {
  const ip = nftFamily(family);
  return ({ chain, rules }) => ({ name: chain, rules: rules.map((rule) => conditionText(rule, ip)) });
}

export function conditionText({ source, inInterface, to }: ConditionRule, ip: 'ip' | 'ip6'): string {
  const from = source === undefined ? '' : `${ip} saddr ${cidrText(source)} `;
  const by = inInterface === undefined ? '' : `iifname ${interfaceText(inInterface)} `;
  return `${from}${by}goto ${to}`;
}

/** The kernel allows nearly every character in names; an operator has named this one. */
const INTERFACE = /^[\w.:@-]{1,15}$/;

function interfaceText({ name, isPrefix }: InterfaceMatch): string {
  if (!INTERFACE.test(name)) throw new Error(`nft cannot name the interface ${JSON.stringify(name)}`);
  return `"${name}${isPrefix ? '*' : ''}"`;
}

function cidrText({ network, prefixLength }: Cidr): string {
  return `${network}/${prefixLength}`;
}

/** Without networks that lie in another one, which a set of nft refuses. */
function disjoint(networks: readonly Cidr[]): readonly Cidr[] {
  const isWider = (one: Cidr, other: Cidr) => one.prefixLength < other.prefixLength && cidrContains(one, other.network);
  const texts = new Map(networks.map((cidr) => [cidrText(cidr), cidr]));
  return [...texts.values()].filter((cidr) => !networks.some((other) => isWider(other, cidr)));
}
