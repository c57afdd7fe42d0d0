import { parseArgs } from 'node:util';
import { Environment, TCP, UDP } from '../../test/netns/harness.ts';
import type { ProxyProcess } from '../../test/netns/proxy.ts';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { isAlive, residentKiB } from '../../test/support/processes.ts';
import { Flows, HeldConnections, MIB, Transfers } from './traffic.ts';
import { upgrade } from './upgrade.ts';

/*
 * Upgrades in place, one after another, while connections are open, transfers run, new connections come and UDP flows
 * ask: what stands still for how long, and whether anything is lost.
 */

const USAGE = 'scripts/bench upgrade [--upgrades N] [--connections N] [--flows N]';
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
  const idle = await HeldConnections.open(client, echo, size.connections);
  const flows = await Flows.open(client, dns, size.flows);
  const transfers = new Transfers(client, { sink, source }, TRANSFER_BYTES);
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
    `transfers of ${TRANSFER_BYTES / MIB} MiB that were not whole: ${transfers.failed + transfers.corrupt} of ${transfers.count}`,
  );
  console.log(`UDP flows that changed their endpoint or had no answer: ${flows.broken} of ${size.flows}`);
  return failures + idle.broken + transfers.failed + transfers.corrupt + flows.broken === 0 ? 0 : 1;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

process.exitCode = await main();
