import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { endProcess } from '../../src/kernel/process.ts';
import { binary } from '../cluster/control-plane.ts';
import { PROGRAM } from '../netns/proxy.ts';
import { ConformanceCluster, type ServiceProxy } from './cluster.ts';
import { parseJunit, resultTable, type TestResult } from './results.ts';

const USAGE = `Usage: scripts/conformance [--proxies A,B] [--network bridge|unnumbered] [--nodes N] [--focus RE] [--skip RE]

Runs the [sig-network] tests of Kubernetes' own e2e.test on a cluster of real nodes, once with each of these Service
proxies, and prints a table. The exit code is 1 when kube-userspace-proxy fails a test that kube-proxy passes.

  --proxies A,B    of kube-userspace-proxy, kube-proxy (both)
  --network bridge|unnumbered
                   pods behind a bridge, or on links without addresses, as with Calico and AWS (bridge)
  --nodes N        1 to 9 (2)
  --focus RE, --skip RE
                   other tests than those that such a cluster can pass`;

const FOCUS = String.raw`\[sig-network\]`;
/** What takes long, breaks the nodes, is not on by default, or wants a cloud or another program. */
const SKIP = ['Slow', 'Serial', 'Disruptive', 'Feature:', 'FeatureGate:']
  .map((label) => String.raw`\[${label}`)
  .concat('LoadBalancer', 'IPVS', 'SCTP', 'Windows', 'Ingress')
  .join('|');
const PROXIES: readonly ServiceProxy[] = ['kube-userspace-proxy', 'kube-proxy'];
const AT_ONCE = 6;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      proxies: { type: 'string', default: PROXIES.join() },
      network: { type: 'string', default: 'bridge' },
      nodes: { type: 'string', default: '2' },
      focus: { type: 'string', default: FOCUS },
      skip: { type: 'string', default: SKIP },
      help: { type: 'boolean', default: false },
    },
  });
  const proxies = PROXIES.filter((name) => values.proxies.split(',').includes(name));
  const { network, focus, skip } = values;
  const nodes = Number(values.nodes);
  const isSense = (network === 'bridge' || network === 'unnumbered') && /^[1-9]$/.test(values.nodes);
  if (values.help || !isSense || proxies.length === 0) {
    console.log(USAGE);
    return values.help ? 0 : 2;
  }
  const [directory = '', bin = ''] = [process.env['CONFORMANCE_DIRECTORY'], process.env['CONFORMANCE_BIN']];
  const cluster = new ConformanceCluster({ directory, bin, nodes, network, program: PROGRAM });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => void cluster.remove().finally(() => endProcess(1)));
  }
  const results = new Map<string, readonly TestResult[]>();
  try {
    say(`${nodes} nodes are coming up`);
    await cluster.start();
    for (const proxy of proxies) {
      say(`${proxy} runs on them, and e2e.test`);
      await cluster.runProxy(proxy);
      const folder = join(directory, 'results', `${proxy}-${network}`);
      results.set(proxy, await runTests(cluster, { folder, bin, focus, skip, nodes }));
      await cluster.stopProxy();
    }
  } finally {
    await cluster.remove();
  }
  console.log(resultTable(results));
  for (const [proxy, list] of results) {
    for (const { name, failure } of list.filter(({ passed }) => !passed))
      console.log(`\n${proxy}: ${name}\n${failure}`);
  }
  const passes = (proxy: ServiceProxy) => results.get(proxy)?.filter(({ passed }) => passed) ?? [];
  const ours = new Set(passes('kube-userspace-proxy').map(({ name }) => name));
  return proxies.length === 2 && passes('kube-proxy').some(({ name }) => !ours.has(name)) ? 1 : 0;
}

interface Run {
  readonly folder: string;
  readonly bin: string;
  readonly focus: string;
  readonly skip: string;
  readonly nodes: number;
}

async function runTests(cluster: ConformanceCluster, { folder, bin, focus, skip, nodes }: Run): Promise<TestResult[]> {
  mkdirSync(folder, { recursive: true });
  const junit = join(folder, 'junit.xml');
  const [program, ...args] = cluster.inGateway([
    join(bin, 'ginkgo'),
    `--nodes=${AT_ONCE}`,
    '--no-color',
    '--timeout=3h',
    '--poll-progress-after=0',
    `--focus=${focus}`,
    `--skip=${skip}`,
    '--junit-report=junit.xml',
    `--output-dir=${folder}`,
    join(bin, 'e2e.test'),
    '--',
    '--provider=skeleton',
    `--kubeconfig=${cluster.kubeconfig}`,
    `--kubectl-path=${binary('KUBECTL')}`,
    `--num-nodes=${nodes}`,
    '--allowed-not-ready-nodes=0',
    '--disable-log-dump',
  ]);
  writeFileSync(junit, '');
  const child: ChildProcess = spawn(program!, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
  const log = createWriteStream(join(folder, 'log.txt'));
  child.stdout!.pipe(log, { end: false });
  child.stderr!.pipe(log, { end: false });
  await once(child, 'close');
  log.end();
  const results = parseJunit(readFileSync(junit, 'utf8'));
  if (results.length === 0) throw new Error(`no test ran; ${join(folder, 'log.txt')} says why`);
  return results;
}

function say(line: string): void {
  console.error(`${new Date().toTimeString().slice(0, 8)} ${line}`);
}

await endProcess(await main());
