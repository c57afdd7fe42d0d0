import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import type { Agent } from '../agent.ts';
import { Environment, metric, NOBODY, TCP } from '../harness.ts';
import type { ProxyProcess } from '../proxy.ts';
import { POD_ADDRESSES } from '../topology.ts';
import { waitFor } from '../wait.ts';

const MIB = 1024 * 1024;
const HALF_OPEN_MS = 4_000;
/** Far less than the minute for which the kernel keeps the port of a closed connection (TIME_WAIT). */
const REUSE_MS = 30_000;
const PORT_RANGE = '/proc/sys/net/ipv4/ip_local_port_range';

describe('TCP through the whole program', () => {
  let environment: Environment;
  let proxy: ProxyProcess;
  let client: Agent;

  before(async () => {
    environment = await Environment.create();
    proxy = await environment.startProxy({ args: ['--tcp-half-open-timeout', `${HALF_OPEN_MS}ms`] });
    client = environment.client;
  });

  after(() => environment.remove());

  /** A Service with one backend of this mode. */
  const serve = (mode: keyof typeof TCP) =>
    environment.serve({
      name: `${mode}-${environment.number()}`,
      ports: [{ port: 80, target: TCP[mode] }],
      endpoints: [POD_ADDRESSES[0]],
    });

  test('clients that close first do not use up local ports: 40 connections with 20 ports', async () => {
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

  test('a slow reader stops the writer, and the proxy does not grow', async () => {
    const service = await serve('stall');
    const before = residentBytes(proxy.pid);
    const { connection, sent } = await client.call('fill', { ...service, bytes: 1024 * MIB });
    assert.ok(sent < 64 * MIB, `${sent / MIB} MiB left the client`);
    const growth = residentBytes(proxy.pid) - before;
    assert.ok(growth < 256 * MIB, `the proxy grew by ${growth / MIB} MiB`);
    await client.call('reset', { connection });
  });

  test('if all endpoints refuse, the client is closed at once, and one warning says so', async () => {
    const service = await environment.serve({
      name: 'dead',
      ports: [{ port: 80, target: NOBODY }],
      endpoints: POD_ADDRESSES,
    });
    for (let round = 0; round < 20; round++) {
      const { connection } = await client.call('open', service);
      assert.equal((await client.call('finish', { connection })).text, '');
    }
    const failures = metric(
      await environment.metricsText(),
      'userspace_proxy_connect_failures_total',
      'service="dead"',
      'reason="timeout"',
    );
    assert.equal(failures, 0, 'no client waited');
    const warnings = () => proxy.lines({ level: 'warn', svc: 'test/dead' });
    await waitFor('a warning', () => warnings().length > 0);
    assert.ok(warnings().length <= 2, JSON.stringify(warnings()));
  });

  test('without endpoints the client is refused at once, and served once there is one', async () => {
    const service = await environment.serve({ name: 'empty', ports: [{ port: 80, target: NOBODY }], endpoints: [] });
    await assert.rejects(client.call('open', service), /ECONNREFUSED/);
    environment.write({ ...service, ports: [{ port: 80, target: TCP.name }], endpoints: [POD_ADDRESSES[0]] });
    await waitFor('an answer', () =>
      client.call('request', service).then(
        ({ name }) => name === 'pod-1',
        () => false,
      ),
    );
  });

  for (const [operation, mode] of [
    ['upload', 'sink'],
    ['download', 'source'],
  ] as const) {
    test(`a 1 GiB ${operation} arrives bit for bit`, async () => {
      const { intact } = await client.call(operation, { ...(await serve(mode)), bytes: 1024 * MIB });
      assert.ok(intact);
    });
  }
});

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}
