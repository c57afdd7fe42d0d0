import { FamilyCapture } from '../capture/family-capture.ts';
import type { CaptureMethod } from '../capture/method.ts';
import { PortBook } from '../capture/port-book.ts';
import type { Exec, ExecResult } from '../kernel/iptables/exec.ts';
import { type Address, addressBlock, type IpFamily, parseAddress, WILDCARDS } from '../model/address.ts';
import { CaptureError, type NodeFacts, type Portal, type Problem } from '../model/capture.ts';
import { namedEndpoint } from '../model/endpoint.ts';
import type { ServicePort } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import { messageOf } from '../util/text.ts';
import { type Finding, FindingsLog, fail, ok, warn } from './finding.ts';

/** Tried in order. The second way works without administrator rights. */
const WAYS = [['--net'], ['--user', '--map-root-user', '--net']] as const;

/**
 * Runs each program in an empty network namespace of its own, which ends at once. Nothing of this machine is touched;
 * the kernel may load modules, as for a run. Rejects with a {@link CaptureError} where there can be no such namespace.
 */
export function inEmptyNamespace(exec: Exec): Exec {
  return async ({ program, args, ...request }) => {
    let why = '';
    for (const way of WAYS) {
      const result = await exec({ ...request, program: 'unshare', args: [...way, program, ...args] });
      const notRun = whyNotRun(result);
      if (notRun === undefined) return result;
      why = notRun;
    }
    throw new CaptureError(why, { mayPass: true });
  };
}

/** `undefined` when the program itself was run. */
function whyNotRun(result: ExecResult): string | undefined {
  if (result.outcome === 'missing') return 'there is no program unshare';
  return result.outcome === 'exited' && result.stderr.startsWith('unshare: ') ? result.stderr.trim() : undefined;
}

/** Whether the kernel accepts everything that a method may write for a Service. `method`: in an empty namespace. */
export async function checkKernelRules(
  method: CaptureMethod,
  families: readonly IpFamily[],
  clock: Clock,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const family of families) {
    const node = sampleNode(family);
    const range = { first: 40_000, last: 40_001 };
    const capture = new FamilyCapture({
      method,
      others: [],
      ports: new PortBook({ range, reserved: new Set(), clock, random: () => 0 }),
      node: () => node,
      family,
      connectionMark: 1,
      metrics: NO_METRICS,
      clock,
      log: new FindingsLog(''),
    });
    try {
      capture.apply({ upserted: samplePortals(family), removed: [] });
      await capture.sync({ verify: true });
      findings.push(...refusal(family, capture.problems()));
    } catch (error) {
      const err = messageOf(error);
      if (error instanceof CaptureError && error.mayPass) {
        return [warn(`the kernel was not asked for its matches: ${err}`, 'run this check as root on the host')];
      }
      findings.push(fail(`the kernel refuses the tables for ${family}: ${err}`, 'load the modules of these tables'));
    }
  }
  return findings.length === 0 ? [ok(`the kernel accepts every kind of rule (${families.join(' and ')})`)] : findings;
}

const NO_METRICS = { changesQueued: () => {}, syncDone: () => {}, restoreFailed: () => {}, rulesInstalled: () => {} };

/** Parts of rules that have no module of their own. */
const BUILT_IN: readonly string[] = ['tcp', 'udp', 'ACCEPT', 'DROP', 'RETURN'];

function refusal(family: IpFamily, problems: readonly Problem[]): readonly Finding[] {
  const rules = problems.map(({ fields }) => String(fields['rule']));
  if (rules.length === 0) return [];
  const parts = rules.flatMap((rule) =>
    Array.from(rule.matchAll(/(?:^| )-[mj] ([a-zA-Z]+)/g), ([, name = '']) => name),
  );
  const modules = [...new Set(parts)].filter((name) => !BUILT_IN.includes(name)).map((name) => `xt_${name}`);
  const found = `the kernel refuses ${rules.length} kinds of rules for ${family}, such as "${rules[0]}"`;
  return [fail(found, `load the modules: modprobe ${modules.join(' ')}`)];
}

function at(family: IpFamily, last: number): Address {
  return parseAddress(family === 'IPv4' ? `192.0.2.${last}` : `2001:db8::${last}`) as Address;
}

function sampleNode(family: IpFamily): NodeFacts {
  return { family, bindAddress: WILDCARDS[family], hostAddress: at(family, 1), nodePortCidrs: [], pods: [] };
}

/** Of a Service with everything: cluster IP, external IP, NodePort, source ranges, TCP and UDP. */
function samplePortals(family: IpFamily): readonly Portal[] {
  const servicePort: ServicePort = {
    name: 'default/check',
    protocol: 'TCP',
    port: 80,
    nodePort: 30_000,
    healthCheckNodePort: 30_001,
    clusterIPs: [at(family, 2)],
    externalIPs: [at(family, 3)],
    loadBalancerIPs: [at(family, 4)],
    loadBalancerSourceRanges: [addressBlock(at(family, 6))],
    affinity: { type: 'None' },
    endpoints: [namedEndpoint(at(family, 5), 8_080)],
  };
  const { healthCheckNodePort, ...ofUdp } = servicePort;
  return [
    { servicePort, localPort: 40_000 },
    { servicePort: { ...ofUdp, name: 'default/check:udp', protocol: 'UDP' }, localPort: 40_001 },
  ];
}
