import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { endProcess } from '../src/kernel/process.ts';
import { Agent } from '../test/netns/agent.ts';
import { ProxyProcess } from '../test/netns/proxy.ts';
import { CLIENT_ADDRESS, type Namespace, NODE_ADDRESS, Topology } from '../test/netns/topology.ts';
import { waitFor } from '../test/netns/wait.ts';

/*
 * The real program with the manifests of examples/, between real backends and clients. Every figure that is shown is
 * also checked: the demo fails rather than show something that does not hold.
 */

const EXAMPLES = fileURLToPath(new URL('../examples', import.meta.url));
const WEB = '10.96.0.100';
const STICKY = '10.96.0.101';
const DNS = '10.96.0.10';
/** The chains that have a rule for "web", and what it is for. */
const RULES = [
  ['KUBE-PORTALS-CONTAINER', 'the ClusterIP, for packets from pods and from outside'],
  ['KUBE-PORTALS-HOST', 'the same, for programs on the node itself'],
  ['KUBE-NODEPORT-CONTAINER', 'the NodePort, for packets from pods and from outside'],
  ['KUBE-NODEPORT-HOST', 'the same, for programs on the node itself'],
  ['KUBE-LOCAL-PORTS', 'whoever asks for the local port itself is refused'],
  ['KUBE-NODEPORT-NON-LOCAL', 'what came by the NodePort passes a firewall that lets nothing in'],
] as const;
const METRICS = 'http://127.0.0.1:10249/metrics';

const style = (code: number) => (text: string) => (process.stdout.isTTY ? `\x1b[${code}m${text}\x1b[0m` : text);
const bold = style(1);
const dim = style(2);
const green = style(32);

let step = 0;

function heading(title: string, ...why: readonly string[]): void {
  step++;
  console.log(`\n${bold(`${step}. ${title}`)}`);
  for (const line of why) console.log(`   ${line}`);
  console.log();
}

function command(where: string, line: string): void {
  console.log(`   ${dim(`${where} $`)} ${line}`);
}

function result(line: string): void {
  console.log(`   ${green('->')} ${line}`);
}

/** How many answers came from each backend. */
function table(answers: ReadonlyMap<string, number>): void {
  console.log(`\n     ${dim('backend   answers')}`);
  for (const [name, count] of [...answers].sort()) {
    console.log(`     ${name.padEnd(8)} ${String(count).padStart(8)}  ${'#'.repeat(count)}`);
  }
  console.log();
}

function check(holds: boolean, expectation: string): void {
  if (!holds) throw new Error(`this did not hold: ${expectation}`);
}

/** Asks by curl, each time on a new connection; fails if one request fails. */
async function curl(from: Namespace, url: string, times: number): Promise<Map<string, number>> {
  const script = `for i in $(seq ${times}); do curl --silent --show-error --max-time 5 ${url} && echo; done`;
  const { stdout, stderr } = await from.run(['sh', '-c', script]);
  const answers = stdout.split('\n').filter(Boolean);
  check(
    answers.length === times,
    `${times} of ${times} requests to ${url} are answered (${answers.length} were) ${stderr}`,
  );
  return tally(answers);
}

function tally(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

type Answers = ReadonlyMap<string, number>;

function isEven(answers: Answers, backends: number): boolean {
  return answers.size === backends && new Set(answers.values()).size === 1;
}

/**
 * Asks again where it is not so: on a machine that does much else, a connect may take so long that another is tried.
 */
function evenly(what: string, ask: () => Promise<Answers>): Promise<Answers> {
  return waitFor(what, async () => {
    const answers = await ask();
    return isEven(answers, 3) && answers;
  });
}

async function demo(topology: Topology): Promise<void> {
  const { node, pods, client, outside } = topology;
  const backends = pods.map((pod, index) => new Agent(pod, `pod-${index + 1}`));
  await Promise.all(backends.flatMap((backend) => [backend.serve(8080, 'name'), backend.serve(5353, 'udp-name')]));
  const clients = new Agent(client, 'client');

  console.log(`${bold('kube-userspace-proxy')}: one address for many backends, on a node without IPVS

   A small cluster has been set up on this machine, in network namespaces of its own:

      pod-1         pod-2         pod-3         client
      10.244.1.11   10.244.1.12   10.244.1.13   ${CLIENT_ADDRESS}
        └─────────────┴──────┬──────┴─────────────┘
                           node ── ${NODE_ADDRESS} ── outside`);

  heading('Start the proxy on the node', 'It reads Services and their backends from files; a cluster is not needed.');
  command('node', 'kube-userspace-proxy --manifests examples');
  const proxy = new ProxyProcess(node, ['--manifests', EXAMPLES, '--log-format', 'text']);
  const begun = performance.now();
  const isServing = async () => {
    check(proxy.running, `the proxy runs; it said:\n${proxy.tail()}`);
    return (await node.output(['iptables-save', '-t', 'nat'])).includes(`-d ${DNS}/32`);
  };
  await waitFor('the proxy installs its rules', isServing);
  result(`ready after ${Math.round(performance.now() - begun)} ms; it serves the three Services of examples/`);

  heading(
    'Reach a Service at its one address',
    `${WEB} is the ClusterIP of the Service "web". No machine has this address:`,
    'the node catches what is sent there, and the proxy passes it to one backend after the other.',
  );
  command('client', `curl http://${WEB}/     # 30 times`);
  const spread = await evenly('each of the three backends answers 10 of 30 requests', () =>
    curl(client, `http://${WEB}/`, 30),
  );
  table(spread);
  result('every backend got the same share');
  await evenly('the NodePort is balanced for the node', () => curl(node, 'http://127.0.0.1:30080/', 3));
  await evenly('the NodePort is balanced for others', () => curl(outside, `http://${NODE_ADDRESS}:30080/`, 3));
  result(`the same through NodePort 30080, from the node (127.0.0.1) and from outside (${NODE_ADDRESS})`);

  // Backends and client are on one bridge (docs/adr/0023).
  if (existsSync('/proc/sys/net/bridge')) {
    heading(
      'See the client, not the proxy',
      'Each of those was a connection of the proxy to a backend. The kernel gives it the address of the client, as it',
      'does for kube-proxy, so access logs, limits and NetworkPolicies work as they do without a proxy.',
    );
    command('pods', 'show the address that each of the 30 requests came from');
    const logs = await Promise.all(backends.map((backend) => backend.call('seen', { port: 8080 })));
    const remotes = logs.flatMap(({ connections }) => connections.map(({ remote }) => remote.replace(/:\d+$/, '')));
    const fromClient = remotes.filter((remote) => remote.endsWith(CLIENT_ADDRESS)).length;
    check(fromClient >= 30, `30 requests came from ${CLIENT_ADDRESS} (${fromClient} of ${remotes.length} did)`);
    result(`all 30 came from ${CLIENT_ADDRESS}, the client's own address`);
  }

  heading(
    'Lose a backend',
    'pod-2 stops answering, and nobody has told the proxy yet: it is still on the list. A balancer in the kernel',
    'would send every third connection there and let it fail. This one sees the refusal and tries the next.',
  );
  await backends[1]!.call('unlisten', { port: 8080 });
  command('pod-2', 'kill the web server');
  command('client', `curl http://${WEB}/     # 30 times`);
  const survivors = await curl(client, `http://${WEB}/`, 30);
  table(survivors);
  check(!survivors.has('pod-2') && survivors.size === 2, 'pod-1 and pod-3 answer everything');
  const metrics = await node.output(['curl', '--silent', '--max-time', '5', METRICS]);
  result(`30 of 30 requests answered; the proxy tried another backend ${retries(metrics)} times (see /metrics)`);
  await backends[1]!.serve(8080, 'name');

  heading(
    'Stay with one backend',
    'The Service "sticky" has sessionAffinity: ClientIP, for applications that keep sessions in memory.',
  );
  for (const [name, from] of [
    ['client', client],
    ['node', node],
    ['outside', outside],
  ] as const) {
    const url = `http://${STICKY}/`;
    command(name.padEnd(7), `curl ${url}     # 10 times`);
    const answers = await curl(from, url, 10);
    check(answers.size === 1, `one backend answers all requests of ${name}`);
    result(`10 answers, all from ${[...answers.keys()]}`);
  }

  heading(
    'Balance UDP',
    `The Service "dns" at ${DNS}:53 is UDP. Each client port is a flow of its own and stays with its backend`,
    'while it lasts; replies come from the address that was asked.',
  );
  command('client', `12 datagrams to ${DNS}:53, each from a new port`);
  const flows = new Map(Object.entries(await clients.call('udpFlows', { host: DNS, port: 53, count: 12 })));
  table(flows);
  check(isEven(flows, 3), 'each of the three backends answers 4 of 12 datagrams');
  result('every backend got the same share');

  heading(
    'Look at the rules',
    'This is all that the kernel has to know: rules that lead to a local port of the proxy, in the chains and the form',
    'of kube-proxy. Picking a backend, trying another one and counting is done by the proxy. For "web":',
  );
  command('node', 'iptables-save | grep default/web');
  const rules = (await node.output(['iptables-save'])).split('\n').filter((line) => line.includes('default/web'));
  check(rules.length === RULES.length, `"web" has ${RULES.length} rules (it has ${rules.length})`);
  for (const [chain, meaning] of RULES) {
    console.log(`\n   ${dim(`# ${meaning}`)}\n   ${rules.find((rule) => rule.startsWith(`-A ${chain} `))}`);
  }
  console.log();
  result(`${rules.length} rules, however many backends "web" has`);

  heading(
    'Stop it',
    'Rules stay in place when the proxy stops, so that a restart is short; --cleanup takes them away.',
  );
  command('node', 'kill -TERM $PROXY; kube-userspace-proxy --cleanup');
  const code = await proxy.stop();
  check(code === 0, `the proxy exits with 0 (it was ${code})`);
  const cleanup = new ProxyProcess(node, ['--cleanup']);
  check((await cleanup.exited()).code === 0, `--cleanup succeeds; it said:\n${cleanup.tail()}`);
  check(!(await node.output(['iptables-save'])).includes('KUBE-'), 'no rule is left');
  result('no rule is left on the node');
}

/** Sum of the retries of "web". */
function retries(metrics: string): number {
  const samples = metrics.split('\n').filter((line) => /_retries_total\{.*"web"/.test(line));
  return samples.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

let topology: Topology | undefined;
let failure: Error | undefined;
try {
  topology = await Topology.create();
  await demo(topology);
} catch (error) {
  failure = error as Error;
}
topology?.remove();
if (failure === undefined) {
  console.log(`\n${bold('Done.')} The namespaces are gone; nothing is left on this machine. Next: README.md\n`);
} else {
  console.error(`\ndemo: failed, because ${failure.message}`);
}
// The agents' pipes would keep this process for a moment.
await endProcess(failure === undefined ? 0 : 1);
