import { isOurs } from '../capture/iptables/chains.ts';
import { BEFORE_FILTER } from '../capture/nft/table.ts';
import type { Exec } from '../kernel/iptables/exec.ts';
import { type InstalledPrograms, programName, type Tools } from '../kernel/iptables/flavour.ts';
import { createIptables } from '../kernel/iptables/iptables.ts';
import type { IpFamily } from '../model/address.ts';
import { type Finding, FindingsLog, ok, warn } from './finding.ts';
import { nft } from './iptables.ts';

/** A chain for incoming packets that the proxy does not write to. */
interface ForeignChain {
  readonly name: string;
  /** What `iptables -S INPUT` or `nft list chain` prints. */
  readonly text: string;
  /** What accepts the packets that NAT has sent to a local port, or that have our mark. */
  readonly cure: string;
  /** Our mark, where the chain sees it: then nothing else tells packets for health check node ports. */
  readonly mark?: number | undefined;
}

interface FirewallFacts {
  /** The tools of a run. */
  readonly own: Tools | undefined;
  readonly families: readonly IpFamily[];
  /** Of the proxy's nft table. */
  readonly mark?: number | undefined;
}

const EVERYTHING = 'connections to Services and health check node ports';

/**
 * Whether a firewall drops packets that the proxy's rules accept: the other flavour of iptables, or a table of nft's
 * own. (In its own flavour, the proxy's accepting rules come first.) Only a chain that accepts no client at all is
 * reported, because the check does not know which rules are for clients of Services.
 */
export async function checkFirewall(
  exec: Exec,
  programs: InstalledPrograms,
  { own, families, mark }: FirewallFacts,
): Promise<readonly Finding[]> {
  const other = own && (await programs.find(own.flavour === 'nft' ? 'legacy' : 'nft'));
  const foreign = other === undefined ? [] : await inputChains(exec, other, families);
  const chains = [...foreign, ...(await nftChains(exec, mark))];
  const findings = chains.flatMap((chain) => {
    const dropped = whatIsDropped(chain);
    return dropped === undefined ? [] : [warn(`${chain.name} drops ${dropped}`, chain.cure)];
  });
  return findings.length > 0 ? findings : [ok('no firewall is known to drop what the rules of the proxy accept')];
}

function whatIsDropped({ text, mark }: ForeignChain): string | undefined {
  const rules = text.split('\n').map((line) => line.trim().replace(COMMENT, ''));
  if (!rules.some((rule) => DROPS_THE_REST.test(rule))) return undefined;
  const accepting = rules.filter((rule) => mayAcceptClients(rule, mark));
  if (accepting.length === 0) return EVERYTHING;
  const isEnough = mark === undefined || !accepting.every((rule) => rule.startsWith('ct status '));
  return isEnough ? undefined : 'connections to health check node ports';
}

async function inputChains(exec: Exec, tools: Tools, families: readonly IpFamily[]): Promise<ForeignChain[]> {
  const iptables = await createIptables(tools, { exec, log: new FindingsLog('') });
  const chains: ForeignChain[] = [];
  for (const family of families) {
    const program = programName(family, tools.infix);
    const cure = `${program} -I INPUT -m conntrack --ctstate DNAT -j ACCEPT, also in that firewall's configuration`;
    // Empty where that flavour has no table: listing it would create it.
    const text = await iptables.list(family, 'filter', 'INPUT').catch(() => '');
    chains.push({ name: `INPUT of ${program}`, text, cure });
  }
  return chains;
}

async function nftChains(exec: Exec, ofTable: number | undefined): Promise<ForeignChain[]> {
  const names = nftInputChains(await nft(exec, 'list', 'chains'));
  return await Promise.all(
    names.map(async (name) => {
      // Priorities as numbers, without the names that nft has for some.
      const text = await nft(exec, '-y', 'list', 'chain', ...name.split(' '));
      const priority = Number(/ priority (-?\d+);/.exec(text)?.[1] ?? 0);
      const mark = priority > BEFORE_FILTER ? ofTable : undefined;
      const rule = mark === undefined ? 'ct status dnat accept' : markRule(mark);
      const isTooEarly = ofTable !== undefined && mark === undefined;
      const ports = isTooEarly ? ', and one for each health check node port: the mark comes after this chain' : '';
      const cure = `nft insert rule ${name} ${rule}, also in that firewall's configuration${ports}`;
      return { name: `the nft chain ${name}`, text, cure, mark };
    }),
  );
}

/** Accepts what our nft table lets in. */
function markRule(mark: number): string {
  const hex = `0x${mark.toString(16)}`;
  return `meta mark & ${hex} == ${hex} accept`;
}

/** The base chains for incoming packets in the output of `nft list chains`, without those of iptables-nft. */
function nftInputChains(list: string): readonly string[] {
  let [table, chain] = ['', ''];
  return list.split('\n').flatMap((line) => {
    table = /^table (\S+ \S+) \{/.exec(line)?.[1] ?? table;
    chain = /^\s*chain (\S+) \{/.exec(line)?.[1] ?? chain;
    const isOfIptables = /^ip6? filter$/.test(table) && chain === 'INPUT';
    return / hook input /.test(line) && /^(ip6?|inet) /.test(table) && !isOfIptables ? [`${table} ${chain}`] : [];
  });
}

/** In a rule of iptables. */
const COMMENT = /-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+) /;
/** What nft prints before a verdict and what matches every packet. */
const COUNTS_OR_LOGS =
  /(?:counter (?:packets \d+ bytes \d+|name \S+) |log (?:prefix "[^"]*" |(?:level|group|snaplen|queue-threshold|flags(?: tcp| ip)?) \S+ )*)*/;
const DROPS_THE_REST = new RegExp(
  `^-P INPUT DROP$|^-A INPUT -j (?:DROP|REJECT)\\b|\\bpolicy drop;|^${COUNTS_OR_LOGS.source}(?:drop|reject)\\b`,
);
const MAY_ACCEPT = /\b(?:accept|jump|goto|vmap)\b|-[jg] (?!DROP|REJECT|RETURN|LOG)/;
/** Rules for loopback, known connections, ICMP, marks of others and single ports, and the policy of an nft chain. */
const NOT_FOR_CLIENTS = [
  /^type |^iif(?:name)? "?lo"?|^ct state|^(?:tcp|udp) dport [^-]*$|^(?:ip6?|meta) \S+ (?:icmp|ipv6-icmp)|^icmp/,
  / -i lo | --(?:ct)?state (?!\S*(?:NEW|DNAT))| --dports? [^ :]+ | -p (?:ipv6-)?icmp/,
  /^meta mark /,
];

/** `mark`: of our nft table, where the rule sees it. */
function mayAcceptClients(rule: string, mark: number | undefined): boolean {
  // Texts, such as a log prefix, are anything.
  if (!MAY_ACCEPT.test(rule.replaceAll(/"[^"]*"/g, '""'))) return false;
  const marked = /^meta mark & (0x[0-9a-f]+) ==/.exec(rule)?.[1];
  if (mark !== undefined && Number(marked) === mark) return true;
  return !NOT_FOR_CLIENTS.some((pattern) => pattern.test(rule)) && !isOwnJump(rule);
}

function isOwnJump(rule: string): boolean {
  return isOurs('filter', / -j (\S+)/.exec(rule)?.[1] ?? '');
}
