import { isOurs } from '../capture/iptables/chains.ts';
import type { Exec } from '../kernel/iptables/exec.ts';
import { findTools, programName, type Tools } from '../kernel/iptables/flavour.ts';
import { createIptables } from '../kernel/iptables/iptables.ts';
import type { IpFamily } from '../model/address.ts';
import { type Finding, FindingsLog, ok, warn } from './finding.ts';
import { nft } from './iptables.ts';

/** A chain for incoming packets that the proxy does not write to. */
interface ForeignChain {
  readonly name: string;
  /** What `iptables -S INPUT` or `nft list chain` prints. */
  readonly text: string;
  /** What accepts the packets that NAT has sent to a local port. */
  readonly cure: string;
}

/**
 * Whether a firewall drops packets that the proxy's rules accept: the other flavour of iptables, or a table of nft's
 * own. (In its own flavour, the proxy's accepting rules come first.) Only a chain that accepts no client at all is
 * reported, because the check does not know which rules are for clients of Services.
 */
export async function checkFirewall(
  exec: Exec,
  own: Tools | undefined,
  families: readonly IpFamily[],
): Promise<readonly Finding[]> {
  const chains = [...(await inputChains(exec, own, families)), ...(await nftChains(exec))];
  const closed = chains.filter(({ text }) => acceptsNoClient(text));
  if (closed.length === 0) return [ok('no firewall is known to drop what the rules of the proxy accept')];
  return closed.map(({ name, cure }) =>
    warn(`${name} drops connections to Services and health check node ports`, cure),
  );
}

/** INPUT of the flavour that the proxy does not use. */
async function inputChains(exec: Exec, own: Tools | undefined, families: readonly IpFamily[]): Promise<ForeignChain[]> {
  const other = await findTools(own?.flavour === 'nft' ? 'legacy' : 'nft', exec);
  if (own === undefined || other === undefined) return [];
  const iptables = await createIptables({ flavour: other.flavour, exec, log: new FindingsLog('') });
  const chains: ForeignChain[] = [];
  for (const family of families) {
    const program = programName(family, other.infix);
    const cure = `${program} -I INPUT -m conntrack --ctstate DNAT -j ACCEPT, also in that firewall's configuration`;
    // Empty where that flavour has no table: listing it would create it.
    const text = await iptables.list(family, 'filter', 'INPUT').catch(() => '');
    chains.push({ name: `INPUT of ${program}`, text, cure });
  }
  return chains;
}

async function nftChains(exec: Exec): Promise<ForeignChain[]> {
  const names = nftInputChains(await nft(exec, 'list', 'chains'));
  return await Promise.all(
    names.map(async (name) => ({
      name: `the nft chain ${name}`,
      text: await nft(exec, 'list', 'chain', ...name.split(' ')),
      cure: `nft insert rule ${name} ct status dnat accept, also in that firewall's configuration`,
    })),
  );
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

const DROPS_THE_REST = /^-P INPUT DROP$|^-A INPUT -j (?:DROP|REJECT)\b|\bpolicy drop;|^(?:drop|reject)\b/;
const MAY_ACCEPT = /\b(?:accept|jump|goto|vmap)\b|-[jg] (?!DROP|REJECT|RETURN|LOG)/;
/** Rules for loopback, known connections, ICMP and single ports, and the policy of an nft chain. */
const NOT_FOR_CLIENTS = [
  /^type |^iif(?:name)? "?lo"?|^ct state|^(?:tcp|udp) dport [^-]*$|^(?:ip6?|meta) \S+ (?:icmp|ipv6-icmp)|^icmp/,
  / -i lo | --(?:ct)?state (?!\S*(?:NEW|DNAT))| --dports? [^ :]+ | -p (?:ipv6-)?icmp/,
];

function acceptsNoClient(text: string): boolean {
  const rules = text.split('\n').map((line) => line.trim());
  if (!rules.some((rule) => DROPS_THE_REST.test(rule))) return false;
  const isOwnJump = (rule: string) => isOurs('filter', / -j (\S+)/.exec(rule)?.[1] ?? '');
  return !rules.some(
    (rule) => MAY_ACCEPT.test(rule) && !NOT_FOR_CLIENTS.some((pattern) => pattern.test(rule)) && !isOwnJump(rule),
  );
}
