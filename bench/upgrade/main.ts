import { parseArgs } from 'node:util';
import type { Agent } from '../../test/netns/agent.ts';
import { Environment, type Served, TCP, UDP } from '../../test/netns/harness.ts';
import type { ProxyProcess } from '../../test/netns/proxy.ts';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { isAlive, residentKiB } from '../../test/support/processes.ts';

/*
 * Upgrades in place, one after another, while connections are open, transfers run, new connections come and UDP flows
 * ask: what stands still for how long, and whether anything is lost.
 */

const USAGE = 'scripts/bench upgrade [--upgrades N] [--connections N] [--flows N]';
const MIB = 1 << 20;
const TRANSFER_BYTES = 64 * MIB;
const CALLERS = 8;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      upgrades: { type: 'string', default: '20' },
      connections: { type: 'string', default: '5000' },
      flows: { type: 'string', default: '100' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const environment = await Environment.create();
  try {
    const proxy = await environment.startProxy();
    return await measure(environment, proxy, {
      upgrades: Number(values.upgrades),
      connections: Number(values.connections),
      flows: Number(values.flows),
    });
  } finally {
    await environment.remove();
  }
}

interface Size {
  readonly upgrades: number;
  readonly connections: number;
  readonly flows: number;
}

async function measure(environment: Environment, proxy: ProxyProcess, size: Size): Promise<number> {
  const { client } = environment;
  const serve = (mode: keyof typeof TCP) =>
    environment.serve({ name: mode, ports: [{ port: 80, target: TCP[mode] }], endpoints: POD_ADDRESSES });
  const [name, sink, source, echo] = [
    await serve('name'),
    await serve('sink'),
    await serve('source'),
    await serve('echo'),
  ];
  const dns = await environment.serve({
    name: 'dns',
    affinitySeconds: 600,
    ports: [{ port: 53, target: UDP['udp-name'], protocol: 'UDP' }],
    endpoints: POD_ADDRESSES,
  });
  const idle = new IdleConnections(client, await openAll(client, echo, size.connections));
  const flows = await Flows.open(client, dns, size.flows);
  const transfers = new Transfers(client, { sink, source });
  console.log(
    `${size.connections} connections and ${size.flows} UDP flows are open; ${size.upgrades} upgrades follow.`,
  );
  console.log('upgrade  still (ms)  start to end (s)  requests  failed  slowest (ms)  RSS (MiB)');
  let pid = proxy.pid;
  let failures = 0;
  for (let round = 1; round <= size.upgrades; round++) {
    const load = await client.call('startLoad', { ...name, concurrency: CALLERS });
    const upgraded = await upgrade(proxy, pid);
    pid = upgraded.pid;
    await idle.check();
    await flows.check();
    const tally = await client.call('stopLoad', { load });
    const failed = sum(Object.values(tally.failures));
    failures += failed;
    const cells = [
      round,
      upgraded.stillMs,
      (upgraded.tookMs / 1000).toFixed(1),
      sum(Object.values(tally.names)),
      failed,
      tally.ms.reduce((most, each) => Math.max(most, each), 0).toFixed(0),
      (residentKiB(pid, 'VmRSS') / 1024).toFixed(0),
    ];
    console.log([7, 10, 16, 8, 6, 12, 9].map((width, i) => String(cells[i]).padStart(width)).join('  '));
  }
  await transfers.stop();
  process.kill(pid, 'SIGTERM');
  await waitFor('the last one ends', () => !isAlive(pid));
  console.log(`failed requests: ${failures}`);
  console.log(`connections that broke or brought other bytes: ${idle.broken} of ${size.connections}`);
  console.log(
    `transfers of ${TRANSFER_BYTES / MIB} MiB that were not whole: ${transfers.broken} of ${transfers.count}`,
  );
  console.log(`UDP flows that changed their endpoint or had no answer: ${flows.broken} of ${size.flows}`);
  return failures + idle.broken + transfers.broken + flows.broken === 0 ? 0 : 1;
}

async function openAll(client: Agent, echo: Served, count: number): Promise<number[]> {
  const handles: number[] = [];
  while (handles.length < count) {
    handles.push(...(await client.call('openMany', { ...echo, count: Math.min(200, count - handles.length) })));
  }
  return handles;
}

async function upgrade(
  proxy: ProxyProcess,
  pid: number,
): Promise<{ readonly pid: number; readonly stillMs: unknown; readonly tookMs: number }> {
  const ends = () => proxy.log.filter(({ msg }) => /^(Handed over|Cannot hand over|Cannot upgrade)/.test(msg));
  const count = ends().length;
  // Until then it drops what asks it to upgrade.
  const starts = () => proxy.log.filter(({ msg }) => msg === 'Started').length;
  await waitFor('the running process is through with its own start', () => starts() > count);
  const begun = performance.now();
  process.kill(pid, 'SIGHUP');
  const line = await waitFor('the upgrade', () => ends()[count], 120_000);
  if (!line.msg.startsWith('Handed over')) throw new Error(JSON.stringify(line));
  await waitFor('the old process ends', () => !isAlive(pid));
  return { pid: Number(line['pid']), stillMs: line['ms'], tookMs: performance.now() - begun };
}

/** Each says something now and then, and must get the same back. */
class IdleConnections {
  readonly #client: Agent;
  readonly #handles: readonly number[];
  readonly #broken = new Set<number>();
  #round = 0;

  constructor(client: Agent, handles: readonly number[]) {
    this.#client = client;
    this.#handles = handles;
  }

  get broken(): number {
    return this.#broken.size;
  }

  async check(): Promise<void> {
    const round = String(this.#round++).padStart(4, '0');
    await Promise.all(
      this.#handles.map(async (connection) => {
        await this.#client.call('write', { connection, text: `${round}` });
        const read = this.#client.call('read', { connection, bytes: round.length });
        if ((await read.catch(() => '')) !== round) this.#broken.add(connection);
      }),
    );
  }
}

/** Sockets that ask for the name of their endpoint, which must stay the same. */
class Flows {
  readonly #client: Agent;
  readonly #dns: Served;
  readonly #names = new Map<number, string | undefined>();
  readonly #broken = new Set<number>();

  private constructor(client: Agent, dns: Served) {
    this.#client = client;
    this.#dns = dns;
  }

  static async open(client: Agent, dns: Served, count: number): Promise<Flows> {
    const flows = new Flows(client, dns);
    for (let i = 0; i < count; i++) {
      const { socket } = await client.call('udpOpen', {});
      flows.#names.set(socket, await flows.#ask(socket));
    }
    return flows;
  }

  get broken(): number {
    return this.#broken.size;
  }

  async check(): Promise<void> {
    for (const [socket, name] of this.#names) if ((await this.#ask(socket)) !== name) this.#broken.add(socket);
  }

  async #ask(socket: number): Promise<string | undefined> {
    return (await this.#client.call('udpAsk', { socket, ...this.#dns, text: 'who' }))?.text.split(' ')[0];
  }
}

/** One after another in each direction, with checksums, until {@link stop}. */
class Transfers {
  count = 0;
  broken = 0;
  #isOver = false;
  readonly #running: Promise<unknown>;

  constructor(client: Agent, { sink, source }: { readonly sink: Served; readonly source: Served }) {
    const run = async (way: 'upload' | 'download', target: Served) => {
      while (!this.#isOver) {
        const { intact } = await client
          .call(way, { ...target, bytes: TRANSFER_BYTES })
          .catch(() => ({ intact: false }));
        this.count++;
        if (!intact) this.broken++;
      }
    };
    this.#running = Promise.all([run('upload', sink), run('download', source)]);
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

process.exitCode = await main();
