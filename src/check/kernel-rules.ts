import type { Exec, ExecResult } from '../kernel/iptables/exec.ts';
import { programName, type Tools } from '../kernel/iptables/flavour.ts';
import { failureOf } from '../kernel/iptables/iptables.ts';
import { type Address, addressBlock, type IpFamily, parseAddress } from '../model/address.ts';
import type { Table } from '../model/iptables.ts';
import type { ServicePort } from '../model/service-port.ts';
import { chainsOf, fixedChains } from '../rules/chain-layout.ts';
import { JUMPS } from '../rules/chains.ts';
import { findRefused } from '../rules/find-refused.ts';
import { planTable, probeText, textOf } from '../rules/plan.ts';
import type { Rule } from '../rules/rule.ts';
import { RuleSet, treesOf } from '../rules/rule-set.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/** The kernel's answer to restore text. `unknown`: no way to ask it leaves this machine's rules alone. */
export type Offer =
  | { readonly outcome: 'accepted' }
  | { readonly outcome: 'refused' | 'unknown'; readonly err: string };

type OfferRules = (family: IpFamily, text: string) => Promise<Offer>;

/** Tried in order. The second way works without administrator rights. */
const WAYS = [['--net'], ['--user', '--map-root-user', '--net']] as const;

/**
 * Offers rules to the kernel in an empty network namespace, which ends at once. No rule of this machine is touched; the
 * kernel may load modules, as for a run.
 */
export function offerInEmptyNamespace(exec: Exec, { infix }: Tools): OfferRules {
  return async (family, text) => {
    const program = programName(family, infix, 'restore');
    let err = '';
    for (const way of WAYS) {
      const result = await exec({ program: 'unshare', args: [...way, program, '-w', '5', '--noflush'], input: text });
      const notRun = whyNotRun(result);
      if (notRun === undefined) {
        const failure = failureOf(program, result);
        if (failure === undefined) return { outcome: 'accepted' };
        // A lock, a deadline or missing rights say nothing about the kernel.
        return { outcome: failure.code === 'refused' ? 'refused' : 'unknown', err: failure.message };
      }
      err = notRun;
    }
    return { outcome: 'unknown', err };
  };
}

/** `undefined` when iptables itself was run. */
function whyNotRun(result: ExecResult): string | undefined {
  if (result.outcome === 'exited') return result.stderr.startsWith('unshare: ') ? result.stderr.trim() : undefined;
  return result.outcome === 'missing' ? 'there is no program unshare' : failureOf('unshare', result)?.message;
}

/** Parts of rules that have no module of their own. */
const BUILT_IN: readonly string[] = ['tcp', 'udp', 'ACCEPT', 'DROP', 'RETURN'];

/** Whether the kernel has every match and target of the rules of Services. */
export async function checkKernelRules(offer: OfferRules, families: readonly IpFamily[]): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const family of families) {
    for (const table of ['filter', 'nat'] as const) {
      const { text, rules } = sampleRules(family, table);
      const whole = await offer(family, text);
      if (whole.outcome === 'unknown') {
        return [warn(`the kernel was not asked for its matches: ${whole.err}`, 'run this check as root on the host')];
      }
      if (whole.outcome === 'accepted') continue;
      const accepts = async (some: readonly Rule[]) =>
        (await offer(family, probeText(table, some))).outcome === 'accepted';
      findings.push(refusal(`${family} ${table}`, whole.err, await findRefused(rules, accepts)));
    }
  }
  return findings.length === 0 ? [ok(`the kernel accepts every kind of rule (${families.join(' and ')})`)] : findings;
}

function refusal(table: string, err: string, refused: readonly Rule[]): Finding {
  const [first] = refused;
  if (first === undefined)
    return fail(`the kernel refuses the ${table} table: ${err}`, 'load the modules of that table');
  const parts = refused.flatMap(({ spec }) =>
    [...spec.matchAll(/(?:^| )-[mj] ([a-zA-Z]+)/g)].map(([, name = '']) => name),
  );
  const modules = [...new Set(parts)].filter((name) => !BUILT_IN.includes(name)).map((name) => `xt_${name}`);
  return fail(
    `the kernel refuses ${refused.length} kinds of ${table} rules, such as "${first.spec}"`,
    `load the modules: modprobe ${modules.join(' ')}`,
  );
}

/** Rules of a Service with everything: cluster IP, external IP, NodePort, source ranges, TCP and UDP. */
export function sampleRules(
  family: IpFamily,
  table: Table,
): { readonly text: string; readonly rules: readonly Rule[] } {
  const at = (last: number) => parseAddress(family === 'IPv4' ? `192.0.2.${last}` : `2001:db8::${last}`) as Address;
  const servicePort: ServicePort = {
    name: 'default/check',
    protocol: 'TCP',
    port: 80,
    nodePort: 30_000,
    healthCheckNodePort: 30_001,
    clusterIPs: [at(2)],
    externalIPs: [at(3)],
    loadBalancerIPs: [at(4)],
    loadBalancerSourceRanges: [addressBlock(at(6))],
    affinity: { type: 'None' },
    endpoints: [{ address: at(5), port: 8_080 }],
  };
  const bindAddress = family === 'IPv4' ? '0.0.0.0' : '::';
  const book = new RuleSet({ family, bindAddress, hostAddress: at(1), nodePortCidrs: [], pods: [] }, [
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
  // A rule that is offered alone has no chain to jump to.
  const jumps = JUMPS.filter((jump) => jump.table === table).map(({ from, spec }): Rule => {
    return { table, chain: from, spec: spec.replace(/-j \S+$/, '-j RETURN') };
  });
  return {
    text: textOf(planTable(table, new Map(), wanted)?.lines ?? []),
    rules: [...chains.flatMap(({ rules }) => rules), ...jumps],
  };
}
