import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from '../agent.ts';
import { Environment, metric, TCP } from '../harness.ts';
import type { SeenConnection } from '../programs/servers.ts';
import type { ProxyProcess } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MIB = 1024 * 1024;

describe('what a TCP connection keeps on its way', () => {
  let environment: Environment;
  let proxy: ProxyProcess;
  let client: Agent;
  let pod: Agent;

  before(async () => {
    environment = await Environment.create();
    proxy = await environment.startProxy({ args: ['--tcp-half-open-timeout', '1s'] });
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
  async function seenOutcome(port: number, outcome: SeenConnection['outcome'], timeoutMs?: number): Promise<void> {
    const latest = async () => (await pod.call('seen', { port })).connections.at(-1)?.outcome;
    await waitFor(`the backend sees the connection ${outcome}`, async () => (await latest()) === outcome, timeoutMs);
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

  test('a backend that half-closes still gets everything the client sends', async () => {
    const { connection } = await client.call('open', await serve('early-end'));
    await waitFor('the client sees the end', async () => {
      return (await client.call('states', { list: [connection] }))[0] === 'ended';
    });
    for (let round = 0; round < 5; round++) {
      await client.call('write', { connection, text: 'more '.repeat(1000) });
      await sleep(300); // Longer in all than the half-open timeout: what moves is not idle.
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
    await client.call('end', { connection });
    const { how, ms } = await client.call('finish', { connection });
    assert.equal(how, 'ECONNRESET');
    assert.ok(ms > 900 && ms < 2000, `${ms} ms`);
    const metrics = await environment.metricsText();
    assert.equal(metric(metrics, 'userspace_proxy_connections_active', `service="${service.name}"`), 0);
  });

  test('an idle connection that is open in both directions does not end', async () => {
    const { connection } = await client.call('open', await serve('echo'));
    await sleep(2500);
    await client.call('write', { connection, text: 'awake' });
    assert.equal(await client.call('read', { connection, bytes: 5 }), 'awake');
    await client.call('reset', { connection });
  });

  test("a client's reset reaches the backend as a reset", async () => {
    const { connection } = await client.call('open', await serve('mute'));
    await client.call('write', { connection, text: 'x' });
    await sleep(50);
    await client.call('reset', { connection });
    await seenOutcome(TCP.mute, 'reset', 2000);
  });

  test("a backend's reset reaches the client as a reset", async () => {
    const { connection } = await client.call('open', await serve('reset'));
    await client.call('write', { connection, text: 'x' });
    assert.equal((await client.call('finish', { connection, timeoutMs: 2000 })).how, 'ECONNRESET');
  });

  test('a slow reader stops the writer, and the proxy does not grow', async () => {
    const service = await serve('stall');
    const before = residentBytes(proxy.pid);
    const { connection, sent } = await client.call('fill', { ...service, bytes: 1024 * MIB });
    assert.ok(sent < 64 * MIB, `${sent / MIB} MiB left the client`);
    const growth = residentBytes(proxy.pid) - before;
    assert.ok(growth < 64 * MIB, `the proxy grew by ${growth / MIB} MiB`);
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
    // delays by 40 ms in the hope of an answer to carry it.
    const median = rounds.sort((a, b) => a - b)[30]!;
    assert.ok(median < 30, `${median} ms`);
    await client.call('reset', { connection });
  });

  test('both sides are kept alive every 15 s', async () => {
    const service = await serve('echo');
    const { connection, localPort } = await client.call('open', service);
    await client.call('write', { connection, text: 'x' });
    await client.call('read', { connection, bytes: 1 });
    const sockets = (await environment.topology.node.output(['ss', '-Htno', 'state', 'established']))
      .split('\n')
      .filter((line) => line.includes(`:${localPort} `) || line.includes(`:${TCP.echo} `));
    assert.equal(sockets.length, 2, sockets.join('\n'));
    for (const line of sockets) assert.match(line, /timer:\(keepalive,1[0-5](?:\.\d+)?sec/);
    await client.call('reset', { connection });
  });

  test('hundreds of connections at once keep their bytes apart', async () => {
    const service = await environment.serve({
      name: 'many',
      ports: [{ port: 80, target: TCP.sink }],
      endpoints: POD_ADDRESSES,
    });
    const uploads = Array.from({ length: 200 }, (_, index) =>
      client.call('upload', { ...service, bytes: 20_000 + index * 977 }),
    );
    const results = await Promise.all(uploads);
    assert.ok(results.every(({ intact }) => intact));
  });
});

describe('bulk transfer through the ClusterIP', () => {
  let environment: Environment;

  before(async () => {
    environment = await Environment.create();
    await environment.startProxy();
  });

  after(() => environment.remove());

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
