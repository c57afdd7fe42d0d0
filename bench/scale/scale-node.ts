import { readFileSync } from 'node:fs';
import { Agent } from '../../test/netns/agent.ts';
import { metric, TCP, UDP } from '../../test/netns/harness.ts';
import { type Flavour, Iptables } from '../../test/netns/iptables.ts';
import { NftTable } from '../../test/netns/nft-table.ts';
import { ProxyProcess } from '../../test/netns/proxy.ts';
import { Topology } from '../../test/netns/topology.ts';
import { proportionalKiB, residentKiB } from '../../test/support/processes.ts';

const METRICS = 'http://127.0.0.1:10249/metrics';

/** How the proxy captures packets: by nft tables of its own, or by a flavour of iptables. */
export type Means = 'nft' | `iptables-${Flavour}`;

/** Seconds of processor time since the start of the proxy. */
export interface CpuSeconds {
  readonly proxy: number;
  /** The helper, and every iptables that it has run. */
  readonly iptables: number;
}

/** A node with pods that answer with their names, a client, and one proxy at a time. */
export class ScaleNode {
  readonly topology: Topology;
  readonly agent: Agent;
  readonly client: Agent;
  #proxy: ProxyProcess | undefined;

  private constructor(topology: Topology) {
    this.topology = topology;
    this.agent = new Agent(topology.node, 'node');
    this.client = new Agent(topology.client, 'client');
  }

  static async create(): Promise<ScaleNode> {
    const node = new ScaleNode(await Topology.create());
    for (const [index, pod] of node.topology.pods.entries()) {
      const agent = new Agent(pod, `pod-${index + 1}`);
      await agent.serve(TCP.name, 'name');
      await agent.serve(UDP['udp-name'], 'udp-name');
    }
    return node;
  }

  get proxy(): ProxyProcess {
    if (!this.#proxy?.running) throw new Error(`the proxy has ended\n${this.#proxy?.tail() ?? ''}`);
    return this.#proxy;
  }

  get #nft(): NftTable {
    return new NftTable(this.topology.node);
  }

  startProxy(means: Means, flags: readonly string[]): void {
    this.#proxy = new ProxyProcess(this.topology.node, [
      ...(means === 'nft' ? ['--capture', 'nft'] : ['--capture', 'iptables', '--iptables-mode', flavourOf(means)]),
      ...flags,
      ...['--log-format', 'json', '-v', '0'],
    ]);
  }

  /** Stops the proxy and removes its rules, for the next one. */
  async stopProxy(means: Means): Promise<void> {
    await this.#proxy?.stop();
    if (means === 'nft') await this.#nft.flush();
    else await new Iptables(this.topology.node, flavourOf(means)).flush();
  }

  /** As another program would, without a word to the proxy. */
  async flush(means: Means): Promise<void> {
    if (means === 'nft') await this.#nft.flush();
    else await new Iptables(this.topology.node, flavourOf(means)).must('-t nat -F');
  }

  async remove(): Promise<void> {
    this.#proxy?.kill('SIGKILL');
    await this.#proxy?.exited();
    this.topology.remove();
  }

  async metrics(): Promise<string> {
    return (await this.agent.call('httpGet', { url: METRICS })).body;
  }

  /** Since the last time that somebody asked. */
  async loopDelayMs(): Promise<{ p99: number; max: number }> {
    const text = await this.metrics();
    const delay = (name: string) => 1_000 * metric(text, name);
    return { p99: delay('nodejs_eventloop_lag_p99_seconds'), max: delay('nodejs_eventloop_lag_max_seconds') };
  }

  get helperPid(): number {
    return helperOf(this.proxy.pid);
  }

  get cpuSeconds(): CpuSeconds {
    const proxy = ticksOf(this.proxy.pid);
    const helper = ticksOf(this.helperPid);
    return { proxy: proxy.own / 100, iptables: (helper.own + helper.children) / 100 };
  }

  /** MiB. */
  get memory() {
    const mib = (pid: number, field: 'VmRSS' | 'VmHWM') => residentKiB(pid, field) / 1024;
    const { pid } = this.proxy;
    const together = (proportionalKiB(pid) + proportionalKiB(this.helperPid)) / 1024;
    return { proxy: mib(pid, 'VmRSS'), peak: mib(pid, 'VmHWM'), helper: mib(this.helperPid, 'VmRSS'), together };
  }

  /** Every address that is redirected from pods, by the rules in the kernel. */
  async redirected(means: Means): Promise<ReadonlyMap<string, number>> {
    if (means !== 'nft') return redirectedBy(await new Iptables(this.topology.node, flavourOf(means)).save('nat'));
    return new Map((await this.#nft.portals()).map(({ address, localPort }) => [address, localPort]));
  }

  async isListening(port: number): Promise<boolean> {
    return (await this.topology.node.output(['ss', '-Hltn', `sport = :${port}`])).trim() !== '';
  }
}

function flavourOf(means: Exclude<Means, 'nft'>): Flavour {
  return means === 'iptables-nft' ? 'nft' : 'legacy';
}

/** The helper process of this proxy: its main thread has started it. */
export function helperOf(pid: number): number {
  const [helper = ''] = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ');
  if (helper === '') throw new Error('the proxy has no helper process');
  return Number(helper);
}

/** The local port for each address that these lines of the table `nat` redirect from pods. */
export function redirectedBy(nat: readonly string[]): ReadonlyMap<string, number> {
  const ports = new Map<string, number>();
  for (const line of nat) {
    const [, address, port] =
      /^-A KUBE-(?:PORTALS-CONTAINER|USP-P[BCH]-\S+) -d (\S+)\/32 .* -j DNAT --to-destination \S+:(\d+)$/.exec(line) ??
      [];
    if (address !== undefined) ports.set(address, Number(port));
  }
  return ports;
}

/** In hundredths of a second: USER_HZ. Fields as proc(5) counts them, less the two before and in the parentheses. */
function ticksOf(pid: number): { own: number; children: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [utime = 0, stime = 0, cutime = 0, cstime = 0] = fields.slice(11, 15).map(Number);
  return { own: utime + stime, children: cutime + cstime };
}
