import { type Address, addressBlock, type IpFamily, parseAddress } from '../../model/address.ts';
import type { Table } from '../../model/iptables.ts';
import type { ServicePort } from '../../model/service-port.ts';
import { chainsOf, fixedChains } from '../../rules/chain-layout.ts';
import { JUMPS, type Jump } from '../../rules/chains.ts';
import { findRefused } from '../../rules/find-refused.ts';
import { planTable, probeText, textOf } from '../../rules/plan.ts';
import type { Rule } from '../../rules/rule.ts';
import { RuleSet, treesOf } from '../../rules/rule-set.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/**
 * What became of restore text that was offered to a kernel. `untold`: nothing could be asked without changing the rules
 * of this machine.
 */
export type Offer =
  | { readonly outcome: 'accepted' }
  | { readonly outcome: 'refused'; readonly err: string }
  | { readonly outcome: 'untold'; readonly err: string };

/** Offers it to this kernel in a network namespace that is empty and goes at once. */
export type OfferRules = (family: IpFamily, text: string) => Promise<Offer>;

const TABLES: readonly Table[] = ['filter', 'nat'];

/** Parts of rules that have no module of their own. */
const BUILT_IN: readonly string[] = ['tcp', 'udp', 'ACCEPT', 'DROP', 'RETURN'];

/** Whether the kernel has every match and target that rules of Services are made of. */
export async function checkKernelRules(offer: OfferRules, families: readonly IpFamily[]): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const family of families) {
    for (const table of TABLES) {
      const { text, rules } = sampleRules(family, table);
      const whole = await offer(family, text);
      if (whole.outcome === 'untold') return [untold(whole.err)];
      if (whole.outcome === 'refused') {
        const refused = await refusedOf(offer, family, table, rules);
        findings.push(refusal(whole.err, { family, table, refused }));
      }
    }
  }
  return findings.length === 0 ? [ok(`the kernel takes every kind of rule (${families.join(' and ')})`)] : findings;
}

/** The same for every family and table. */
function untold(err: string): Finding {
  return warn(
    `the kernel was not asked whether it knows every match: ${err}`,
    'run this check as root on the host; a match that is missing is told by the log of the proxy, too',
  );
}

async function refusedOf(
  offer: OfferRules,
  family: IpFamily,
  table: Table,
  rules: readonly Rule[],
): Promise<readonly Rule[]> {
  const accepts = async (some: readonly Rule[]) => (await offer(family, probeText(table, some))).outcome === 'accepted';
  return await findRefused({ rules, accepts });
}

function refusal(
  err: string,
  { family, table, refused }: { readonly family: IpFamily; readonly table: Table; readonly refused: readonly Rule[] },
): Finding {
  const [first] = refused;
  if (first === undefined) {
    const prefix = family === 'IPv4' ? 'ip' : 'ip6';
    return fail(
      `the kernel refuses the ${family} ${table} table: ${err}`,
      `modprobe ${prefix}table_${table} nf_conntrack`,
    );
  }
  const modules = new Set(
    refused.flatMap(({ spec }) => [...spec.matchAll(/(?:^| )-[mj] ([a-zA-Z]+)/g)].map(([, name = '']) => name)),
  );
  const named = [...modules].filter((name) => !BUILT_IN.includes(name)).map((name) => `xt_${name}`);
  return fail(
    `the kernel refuses ${refused.length} kinds of ${family} ${table} rules, such as "${first.spec}"`,
    `load what they are made of: modprobe ${named.join(' ')}`,
  );
}

/** Rules of one Service port with everything that there is: cluster IP, external IP, NodePort, source ranges, two sets. */
export function sampleRules(
  family: IpFamily,
  table: Table,
): { readonly text: string; readonly rules: readonly Rule[] } {
  const [node, clusterIP, externalIP, loadBalancerIP, endpoint, range] = sampleAddresses(family);
  const servicePort: ServicePort = {
    name: 'default/check',
    protocol: 'TCP',
    port: 80,
    nodePort: 30_000,
    healthCheckNodePort: 30_001,
    clusterIPs: [clusterIP],
    externalIPs: [externalIP],
    loadBalancerIPs: [loadBalancerIP],
    loadBalancerSourceRanges: [addressBlock(range)],
    affinity: { type: 'None' },
    endpoints: [{ address: endpoint, port: 8_080 }],
  };
  const facts = {
    family,
    bindAddress: family === 'IPv4' ? '0.0.0.0' : '::',
    hostAddress: node,
    nodePortCidrs: [],
    pods: [],
  };
  const book = new RuleSet(facts, [
    { servicePort, localPort: 40_000 },
    { servicePort: { ...servicePort, name: 'default/check:udp', protocol: 'UDP' }, localPort: 40_001 },
  ]);
  const chains = [
    ...fixedChains(table, family),
    ...chainsOf(treesOf(book.trees(), table), { family, connectionMark: 1 }),
  ];
  const wanted = chains.map(({ name, rules, jumps }) => ({
    name,
    specs: [...rules.map(({ spec }) => spec), ...jumps],
  }));
  return {
    text: textOf(planTable({ table, installed: new Map(), wanted })?.lines ?? []),
    // Of jumps only what they match: there is nowhere to jump to where a rule is offered by itself.
    rules: [...chains.flatMap(({ rules }) => rules), ...JUMPS.filter((jump) => jump.table === table).map(asRule)],
  };
}

function asRule({ table, from, spec }: Jump): Rule {
  return { table, chain: from, spec: spec.replace(/-j \S+$/, '-j RETURN') };
}

/** Of documentation networks. */
function sampleAddresses(family: IpFamily): readonly [Address, Address, Address, Address, Address, Address] {
  const at = (last: number) => {
    const address = parseAddress(family === 'IPv4' ? `192.0.2.${last}` : `2001:db8::${last}`);
    if (address === undefined) throw new Error('a documentation address is an address');
    return address;
  };
  return [at(1), at(2), at(3), at(4), at(5), at(6)];
}
