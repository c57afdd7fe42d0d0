import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from '../agent.ts';
import { Environment, metric, TCP } from '../harness.ts';
import type { SeenConnection } from '../programs/servers.ts';
import type { ProxyProcess } from '../proxy.ts';
import { CLIENT_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MIB = 1024 * 1024;
const HALF_OPEN_MS = 4_000;
/** Far less than the minute for which the kernel keeps the port of a connection that is over (TIME_WAIT). */
const REUSE_MS = 30_000;
const PORT_RANGE = '/proc/sys/net/ipv4/ip_local_port_range';

describe('what a TCP connection keeps on its way', () => {
  let environment: Environment;
  let proxy: ProxyProcess;
  let client: Agent;
  let pod: Agent;

  before(async () => {
    environment = await Environment.create();
    proxy = await environment.startProxy({ args: ['--tcp-half-open-timeout', `${HALF_OPEN_MS}ms`] });
    client = environment.client;
    pod = environment.pods[0];
  });

  after(() => environment.remove());

  /** A Service with one backend of this mode. */
  const serve = (mode: keyof typeof TCP) =>
    environment.serve({
      name: `${mode}-${environment.number()}`,
      ports: [{ port: 80, target: TCP[mode] }],
      endpoints: [POD_ADDRESSES[0]],
    });

  /** The backend's side of the latest connection to it, when it has got to this outcome. */
  async function seenOutcome(port: number, outcome: SeenConnection['outcome']): Promise<void> {
    const latest = async () => (await pod.call('seen', { port })).connections.at(-1)?.outcome;
    await waitFor(`the backend sees the connection ${outcome}`, async () => (await latest()) === outcome);
  }

  test('a client that half-closes still gets the whole answer', async () => {
    const { connection } = await client.call('open', await serve('sink'));
    await client.call('write', { connection, text: 'question' });
    await sleep(50);
    await client.call('end', { connection });
    const { text, how } = await client.call('finish', { connection });
    assert.match(text, /^8 [0-9a-f]{64}$/);
    assert.match(how, /ended|closed/);
  });

  test('clients that close first wear out no local port: 40 connections with 20 ports', async () => {
    const service = await serve('sink');
    const { node } = environment.topology;
    const range = await node.output(['cat', PORT_RANGE]);
    const setRange = (text: string) => node.output(['sh', '-c', `echo "${text}" > ${PORT_RANGE}`]);
    const isServed = async () => {
      const { connection } = await client.call('open', service);
      await client.call('end', { connection });
      return (await client.call('finish', { connection })).text !== '';
    };
    await setRange('50000 50019');
    try {
      for (let i = 1; i <= 40; i++) await waitFor(`connection ${i} of 40`, isServed, REUSE_MS);
    } finally {
      await setRange(range.trim());
    }
  });

  test('a backend that half-closes still gets everything the client sends', async () => {
    const { connection } = await client.call('open', await serve('early-end'));
    await waitFor('the client sees the end', async () => {
      return (await client.call('states', { list: [connection] }))[0] === 'ended';
    });
    for (let round = 0; round < 5; round++) {
      await client.call('write', { connection, text: 'more '.repeat(1000) });
      await sleep(900); // Longer in all than the half-open timeout: what moves is not idle.
    }
    await client.call('end', { connection });
    await seenOutcome(TCP['early-end'], 'ended');
    const { connections } = await pod.call('seen', { port: TCP['early-end'] });
    await waitFor('the backend has it all', async () => {
      return (
        (await pod.call('seen', { port: TCP['early-end'] })).connections[connections.length - 1]!.received === 25_000
      );
    });
    assert.equal((await client.call('finish', { connection })).text, 'bye');
  });

  test('a half-open connection in which nothing moves ends after --tcp-half-open-timeout, and not as if it were whole', async () => {
    const service = await serve('mute');
    const { connection } = await client.call('open', service);
    await client.call('write', { connection, text: 'hello' });
    const begun = performance.now();
    await client.call('end', { connection });
    const { how } = await client.call('finish', { connection });
    assert.equal(how, 'ECONNRESET');
    assert.ok(performance.now() - begun >= HALF_OPEN_MS - 100, `${performance.now() - begun} ms`);
    await waitFor('it is over', async () => {
      const metrics = await environment.metricsText();
      return metric(metrics, 'userspace_proxy_connections_active', `service="${service.name}"`) === 0;
    });
  });

  test('an idle connection that is open in both directions does not end', async () => {
    const { connection } = await client.call('open', await serve('echo'));
    await sleep(HALF_OPEN_MS + 1_000);
    await client.call('write', { connection, text: 'awake' });
    assert.equal(await client.call('read', { connection, bytes: 5 }), 'awake');
    await client.call('reset', { connection });
  });

  test("a client's reset reaches the backend as a reset", async () => {
    const service = await serve('mute');
    const { connection } = await client.call('open', service);
    await client.call('write', { connection, text: 'x' });
    // A client that goes while its backend is being dialled is nobody's connection yet.
    await waitFor('it to be joined to its backend', async () => {
      const metrics = await environment.metricsText();
      return metric(metrics, 'userspace_proxy_received_bytes_total', `service="${service.name}"`) === 1;
    });
    await client.call('reset', { connection });
    await seenOutcome(TCP.mute, 'reset');
  });

  test("a backend's reset reaches the client as a reset", async () => {
    const { connection } = await client.call('open', await serve('reset'));
    await client.call('write', { connection, text: 'x' });
    assert.equal((await client.call('finish', { connection })).how, 'ECONNRESET');
  });

  test('a slow reader stops the writer, and the proxy does not grow', async () => {
    const service = await serve('stall');
    const before = residentBytes(proxy.pid);
    const { connection, sent } = await client.call('fill', { ...service, bytes: 1024 * MIB });
    assert.ok(sent < 64 * MIB, `${sent / MIB} MiB left the client`);
    const growth = residentBytes(proxy.pid) - before;
    assert.ok(growth < 256 * MIB, `the proxy grew by ${growth / MIB} MiB`);
    await client.call('reset', { connection });
  });

  test('small writes are not held back (TCP_NODELAY)', async () => {
    const { connection } = await client.call('open', await serve('pairs'));
    const rounds: number[] = [];
    for (let round = 0; round < 60; round++) {
      const begun = performance.now();
      await client.call('write', { connection, text: 'a' });
      await sleep(2);
      await client.call('write', { connection, text: 'b' });
      await client.call('read', { connection, bytes: 1 });
      rounds.push(performance.now() - begun);
    }
    // By Nagle's algorithm the second byte would wait for the first one's acknowledgement, which the backend's kernel
    // delays by 40 ms in the hope of an answer to carry it, though not in the beginning. The quickest one: a busy
    // machine holds up many, yet not all.
    const quickest = Math.min(...rounds.slice(20));
    assert.ok(quickest < 40, `${quickest} ms`);
    await client.call('reset', { connection });
  });

  test('both sides are kept alive every 15 s', async () => {
    const service = await serve('echo');
    const { connection, localPort } = await client.call('open', service);
    await client.call('write', { connection, text: 'x' });
    await client.call('read', { connection, bytes: 1 });
    const sockets = async () =>
      (await environment.topology.node.output(['ss', '-Htno', 'state', 'established']))
        .split('\n')
        .filter((line) => isFrom(line, CLIENT_ADDRESS, localPort) || isFrom(line, POD_ADDRESSES[0], TCP.echo));
    // Until the last byte is acknowledged, another timer runs.
    const kept = (line: string) => /timer:\(keepalive,(?:1[0-5]|\d)(?:\.\d+)?sec/.test(line);
    await waitFor('both are kept alive', async () => (await sockets()).filter(kept).length === 2);
    assert.equal((await sockets()).length, 2);
    await client.call('reset', { connection });
  });
});

describe('bulk transfer through the ClusterIP', () => {
  let environment: Environment;

  before(async () => {
    environment = await Environment.create();
    await environment.startProxy();
  });

  after(() => environment.remove());

  test('hundreds of connections at once keep their bytes apart', async () => {
    const service = await environment.serve({
      name: 'many',
      ports: [{ port: 80, target: TCP.sink }],
      endpoints: POD_ADDRESSES,
    });
    const uploads = Array.from({ length: 200 }, (_, index) =>
      environment.client.call('upload', { ...service, bytes: 20_000 + index * 977 }),
    );
    const results = await Promise.all(uploads);
    assert.ok(results.every(({ intact }) => intact));
  });

  for (const [operation, mode] of [
    ['upload', 'sink'],
    ['download', 'source'],
  ] as const) {
    test(`a 1 GiB ${operation} arrives bit for bit`, async () => {
      const service = await environment.serve({
        name: operation,
        ports: [{ port: 80, target: TCP[mode] }],
        endpoints: POD_ADDRESSES,
      });
      const { intact } = await environment.client.call(operation, { ...service, bytes: 1024 * MIB });
      assert.ok(intact);
    });
  }
});

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

/** Whether a line of `ss` is of a socket whose other end is this. */
function isFrom(line: string, address: string, port: number): boolean {
  return line.includes(` ${address}:${port} `);
}
