import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { HealthCheckNodePorts } from '../../src/http/health-check-node-ports.ts';
import type { IpFamily } from '../../src/model/address.ts';
import type { ServiceKey } from '../../src/model/service.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { until } from '../support/until.ts';
import { freePort } from './free-port.ts';
import { ask } from './http-client.ts';

const WEB: ServiceKey = 'shop/web';
const API: ServiceKey = 'shop/api';

function setUp(t: TestContext) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const proxy = { healthy: true };
  const checks = new HealthCheckNodePorts({ proxyHealthy: () => proxy.healthy, clock, log });
  t.after(() => checks.pause());
  /** How many servers have begun to listen. */
  const listening = (servers: number) =>
    until(
      `${servers} servers listen`,
      () => log.lines.filter((line) => line.message === 'Serving HTTP').length >= servers,
    );
  return { clock, log, proxy, checks, listening };
}

function at(port: number, address = '127.0.0.1') {
  return { address, port };
}

test('the answer is upstream’s, to the byte, on any path, on every address of both families, under any name', async (t) => {
  const { checks, listening } = setUp(t);
  const port = await freePort();
  checks.update(WEB, { port, localEndpoints: 2 });
  await listening(1);
  for (const [address, path] of [
    ['127.0.0.1', '/'],
    ['127.0.0.2', '/healthz'],
    ['::1', '/whatever?x=1'],
  ] as const) {
    const { status, headers, body } = await ask(at(port, address), path, 'GET', { Host: `node-1:${port}` });
    assert.equal(status, 200);
    assert.equal(
      body,
      [
        '{',
        '\t"service": {',
        '\t\t"namespace": "shop",',
        '\t\t"name": "web"',
        '\t},',
        '\t"localEndpoints": 2,',
        '\t"serviceProxyHealthy": true',
        '}',
      ].join('\n'),
    );
    assert.equal(headers['content-type'], 'application/json');
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers['x-load-balancing-endpoint-weight'], '2');
  }
});

test('it is 503 without local endpoints, and while the rules do not keep up', async (t) => {
  const { checks, proxy, listening } = setUp(t);
  const port = await freePort();
  checks.update(WEB, { port, localEndpoints: 0 });
  await listening(1);
  const answer = async () => {
    const { status, headers, body } = await ask(at(port), '/');
    const { localEndpoints, serviceProxyHealthy } = JSON.parse(body);
    return [status, headers['x-load-balancing-endpoint-weight'], localEndpoints, serviceProxyHealthy];
  };
  assert.deepEqual(await answer(), [503, '0', 0, true]);
  checks.update(WEB, { port, localEndpoints: 1 });
  assert.deepEqual(await answer(), [200, '1', 1, true]);
  proxy.healthy = false;
  assert.deepEqual(await answer(), [503, '1', 1, false]);
});

test('it is served on the addresses of NodePorts only, when they are given, and follows their changes', async (t) => {
  const { checks, listening } = setUp(t);
  const port = await freePort();
  checks.listenOn(['127.0.0.2', '127.0.0.3']);
  checks.update(WEB, { port, localEndpoints: 1 });
  await listening(2);
  for (const address of ['127.0.0.2', '127.0.0.3']) assert.equal((await ask(at(port, address), '/')).status, 200);
  await assert.rejects(ask(at(port), '/'), { code: 'ECONNREFUSED' });
  checks.listenOn(['127.0.0.3', '127.0.0.1']);
  await listening(3);
  for (const address of ['127.0.0.1', '127.0.0.3']) assert.equal((await ask(at(port, address), '/')).status, 200);
  await assert.rejects(ask(at(port, '127.0.0.2'), '/'), { code: 'ECONNREFUSED' });
  checks.listenOn(undefined);
  await listening(4);
  assert.equal((await ask(at(port, '127.0.0.2'), '/')).status, 200);
});

test('each Service has its own, which follows the port and ends with the Service', async (t) => {
  const { checks, listening } = setUp(t);
  const [first, second, third] = [await freePort(), await freePort(), await freePort()];
  checks.update(WEB, { port: first, localEndpoints: 1 });
  checks.update(API, { port: second, localEndpoints: 0 });
  await listening(2);
  assert.equal(JSON.parse((await ask(at(first), '/')).body).service.name, 'web');
  assert.equal(JSON.parse((await ask(at(second), '/')).body).service.name, 'api');
  checks.update(WEB, { port: third, localEndpoints: 1 });
  await listening(3);
  await assert.rejects(ask(at(first), '/'), { code: 'ECONNREFUSED' });
  assert.equal((await ask(at(third), '/')).status, 200);
  checks.update('shop/unheard-of', undefined);
  // The port that one Service gives up is free for another at once.
  checks.update(WEB, undefined);
  checks.update(API, { port: third, localEndpoints: 0 });
  await listening(4);
  assert.equal(JSON.parse((await ask(at(third), '/')).body).service.name, 'api');
  await assert.rejects(ask(at(second), '/'), { code: 'ECONNREFUSED' });
});

test('a taken port is logged once and retried, and all others are served', async (t) => {
  const { checks, clock, log, listening } = setUp(t);
  const [taken, free] = [await freePort(), await freePort()];
  const holder = createServer().listen(taken);
  await once(holder, 'listening');
  checks.update(WEB, { port: taken, localEndpoints: 1 });
  checks.update(API, { port: free, localEndpoints: 1 });
  await listening(1);
  assert.equal((await ask(at(free), '/')).status, 200);
  await until('the failure is logged', () => log.of('error').length === 1);
  assert.match(log.of('error')[0]?.message ?? '', /load balancers take this node for unhealthy/);
  assert.equal(log.of('error')[0]?.fields['server'], 'health check of shop/web');
  assert.equal(log.of('error')[0]?.fields['address'], `*:${taken}`);
  holder.close();
  await once(holder, 'close');
  clock.advance(5_000);
  await listening(2);
  assert.equal((await ask(at(taken), '/')).status, 200);
});

test('a pause frees every port; resuming serves the current state', async (t) => {
  const { checks, clock, log, listening } = setUp(t);
  const holder = createServer().listen(0);
  t.after(() => holder.close());
  await once(holder, 'listening');
  const port = await freePort();
  checks.update(WEB, { port, localEndpoints: 1 });
  checks.update(API, { port: (holder.address() as AddressInfo).port, localEndpoints: 1 });
  await listening(1);
  await until('the failure is logged', () => log.of('error').length === 1);
  checks.pause();
  await assert.rejects(ask(at(port), '/'), { code: 'ECONNREFUSED' });
  assert.equal(clock.pendingTimers, 0);
  checks.update(API, undefined);
  checks.update(WEB, { port, localEndpoints: 0 });
  await assert.rejects(ask(at(port), '/'), { code: 'ECONNREFUSED' });
  checks.resume();
  await listening(2);
  assert.equal((await ask(at(port), '/')).status, 503);
});

test('a Service of both families counts the endpoints of the better one, and is gone when both are gone', async (t) => {
  const { checks, listening } = setUp(t);
  const port = await freePort();
  const apply = (family: IpFamily, localEndpoints: number | undefined) =>
    checks.apply(family, new Map([[WEB, localEndpoints === undefined ? undefined : { port, localEndpoints }]]));
  const answered = async () => JSON.parse((await ask(at(port), '/')).body).localEndpoints;
  apply('IPv4', 1);
  apply('IPv6', 2);
  await listening(1);
  assert.equal(await answered(), 2);
  apply('IPv6', 0);
  assert.equal(await answered(), 1);
  apply('IPv4', undefined);
  assert.equal(await answered(), 0);
  apply('IPv6', undefined);
  await assert.rejects(answered(), { code: 'ECONNREFUSED' });
});
