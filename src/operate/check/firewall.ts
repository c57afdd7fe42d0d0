import { type Address, type Cidr, familyOf, type IpFamily, parseAddress, parseCidr } from '../../model/address.ts';
import type { Table } from '../../model/iptables.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { isOurs } from '../../rules/chains.ts';
import type { TracedPacket } from '../../rules/explain-match.ts';
import { explainPath, type Fate, type ListChain } from '../../rules/explain-path.ts';
import type { Clock } from '../../util/clock.ts';
import { type Finding, ok, warn } from './finding.ts';

export interface FirewallFacts {
  readonly family: IpFamily;
  /** Of iptables, which has these rules: `iptables`, `ip6tables-legacy`. */
  readonly program: string;
  /** Where pods are; none when that is not known. */
  readonly clusterCidrs: readonly Cidr[];
  /** One of those that Services may get. */
  readonly localPort: number;
  /** The rules that are there. Rejects when they cannot be read. */
  readonly list: ListChain;
  readonly clock: Clock;
}

type Blocked = Extract<Fate, { kind: 'dropped' | 'rejected' }>;

const PROTOCOLS: readonly ProxiedProtocol[] = ['TCP', 'UDP'];

/** Nobody whom a rule is about. */
const STRANGER: Readonly<Record<IpFamily, string>> = { IPv4: '192.0.2.1', IPv6: '2001:db8::1' };
const SOME_INTERFACE = 'some-interface';

/** Where rules tell more clients apart than that, nothing is said. */
const MAX_CLIENTS = 200;

/** A chain of nft's own that decides what comes in. */
export interface NftChain {
  /** "inet firewall input" */
  readonly name: string;
  /** What `nft list chain` prints. */
  readonly text: string;
}

/**
 * Whether what NAT sends to a local port comes in past the rules of others. `looked`: those of the iptables flavour that
 * the proxy does not use. In its own flavour, its rules come first and let in what is for it; what they accept, another
 * flavour or a table of nft's own can still drop. Which rules let clients in cannot be known, so it is told only if they
 * let nobody in.
 */
export async function checkFirewall(
  looked: readonly FirewallFacts[],
  nftChains: readonly NftChain[],
): Promise<readonly Finding[]> {
  const findings: Finding[] = nftChains.filter(({ text }) => letsNobodyIn(text)).map(toldOfNft);
  for (const facts of looked) {
    const byHow = new Map<string, ProxiedProtocol[]>();
    for (const protocol of PROTOCOLS) {
      const blocked = await blockedForAll(facts, protocol);
      if (blocked === undefined) continue;
      const how = howOf(blocked);
      byHow.set(how, [...(byHow.get(how) ?? []), protocol]);
    }
    for (const [how, protocols] of byHow) findings.push(told(facts, protocols, how));
  }
  return findings.length > 0 ? findings : [ok('no firewall is known to drop what the rules of the proxy let in')];
}

/** The base chains for what comes in among what `nft list chains` prints, but for those of iptables-nft. */
export function nftInputChains(list: string): readonly string[] {
  let table = '';
  let chain = '';
  return list.split('\n').flatMap((line) => {
    table = /^table (\S+ \S+) \{/.exec(line)?.[1] ?? table;
    chain = /^\s*chain (\S+) \{/.exec(line)?.[1] ?? chain;
    const isOfIptables = /^ip6? filter$/.test(table) && chain === 'INPUT';
    return / hook input /.test(line) && /^(ip6?|inet) /.test(table) && !isOfIptables ? [`${table} ${chain}`] : [];
  });
}

/** Rules that accept, and are not about clients of Services: of loopback, of known connections, of ICMP, of single ports. */
const NOT_FOR_CLIENTS = /^(?:iif(?:name)? "?lo"?|ct state|(?:tcp|udp) dport|(?:ip6?|meta) \S+ (?:icmp|ipv6-icmp)|icmp)/;

function letsNobodyIn(text: string): boolean {
  if (!/ policy drop;/.test(text)) return false;
  const [, ...rules] = text
    .slice(text.indexOf('policy drop;'))
    .split('\n')
    .map((line) => line.trim());
  return !rules.some((rule) => /\b(?:accept|jump|goto|vmap)\b/.test(rule) && !NOT_FOR_CLIENTS.test(rule));
}

function toldOfNft({ name }: NftChain): Finding {
  return warn(
    `the nft chain ${name} drops what it does not accept, and the proxy's rules cannot change that: connections to Services, which come in at local ports, and to health check node ports`,
    `nft insert rule ${name} ct status dnat accept, and the health check node ports, in the configuration of that firewall`,
  );
}

function howOf({ kind, by }: Blocked): string {
  return `${kind} by ${by === undefined ? 'the policy of INPUT' : `"${by.rule}" in ${by.chain}`}`;
}

function told({ program }: FirewallFacts, protocols: readonly ProxiedProtocol[], how: string): Finding {
  return warn(
    `${protocols.join(' and ')} from pods to Services, which comes in at local ports, is ${how} (${program}, which the proxy does not use)`,
    `${program} -I INPUT -m conntrack --ctstate DNAT -j ACCEPT, and the same in the configuration of that firewall`,
  );
}

/** What becomes of everybody's first packet. `undefined` when somebody's comes in, or may. */
async function blockedForAll(facts: FirewallFacts, protocol: ProxiedProtocol): Promise<Blocked | undefined> {
  const { family, clusterCidrs, clock } = facts;
  const rules = new KnownRules(facts);
  const pods = clusterCidrs.map(({ network }) => network).filter((network) => familyOf(network) === family);
  let blocked: Blocked | undefined;
  const asked = new Set<string>();
  // Each look at the rules may show more clients that they tell apart.
  for (let client = rules.nextClient(pods, asked); client !== undefined; client = rules.nextClient(pods, asked)) {
    if (asked.size > MAX_CLIENTS) return undefined;
    const packet: TracedPacket = {
      ...{ protocol, ...client, address: undefined, port: facts.localPort },
      ...{ isOwn: false, isFromNat: false },
    };
    const { input } = await explainPath(packet, () => false, rules.list, clock);
    if (input.kind !== 'dropped' && input.kind !== 'rejected') return undefined;
    blocked ??= input;
  }
  return blocked;
}

interface Client {
  readonly source: Address;
  readonly inInterface: string;
}

/** Rules as they were read first, and whom they tell apart. */
class KnownRules {
  readonly #facts: FirewallFacts;
  readonly #texts = new Map<string, Promise<string>>();
  readonly #sources = new Set<Address>();
  readonly #interfaces = new Set([SOME_INTERFACE]);

  constructor(facts: FirewallFacts) {
    this.#facts = facts;
    const stranger = parseAddress(STRANGER[facts.family]);
    if (stranger !== undefined) this.#sources.add(stranger);
  }

  readonly list: ListChain = (table, chain) => {
    // In place of the rules of a Service.
    if (table === 'nat') return Promise.resolve(`-A ${chain} -j REDIRECT --to-ports ${this.#facts.localPort}`);
    // Those of a proxy that runs are for the local ports that it has given out.
    if (isOurs(table, chain)) return Promise.resolve(`-N ${chain}`);
    const known = this.#texts.get(chain) ?? this.#read(table, chain);
    this.#texts.set(chain, known);
    return known;
  };

  async #read(table: Table, chain: string): Promise<string> {
    const text = await this.#facts.list(table, chain);
    for (const [, name = ''] of text.matchAll(/ -i (\S+)/g))
      if (name !== 'lo') this.#interfaces.add(name.replace('+', '0'));
    for (const [, network = ''] of text.matchAll(/ -s (\S+)/g)) {
      const address = parseCidr(network)?.network;
      if (address !== undefined) this.#sources.add(address);
    }
    return text;
  }

  /** One of those that `asked` does not name yet, which is added. */
  nextClient(pods: readonly Address[], asked: Set<string>): Client | undefined {
    for (const source of pods.length > 0 ? pods : this.#sources) {
      for (const inInterface of this.#interfaces) {
        const name = `${source} ${inInterface}`;
        if (asked.has(name)) continue;
        asked.add(name);
        return { source, inInterface };
      }
    }
    return undefined;
  }
}
