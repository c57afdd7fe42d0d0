import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingHttpHeaders, request } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { describe, type TestContext, test } from 'node:test';
import { COUNTERS, type Counters, type ServicePortStats } from '../../src/contracts/data-plane.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import { Health } from '../../src/telemetry/health.ts';
import { HttpServer } from '../../src/telemetry/http-server.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';
import { healthzRoutes, metricsRoutes, type Routes, TEXT } from '../../src/telemetry/routes.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

interface Reply {
  status: number | undefined;
  headers: IncomingHttpHeaders;
  body: string;
}

function ask(address: AddressInfo, path: string, method = 'GET'): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: address.address, port: address.port, path, method, agent: false }, (incoming) => {
      let body = '';
      incoming.setEncoding('utf8');
      incoming.on('data', (text) => {
        body += text;
      });
      incoming.on('end', () => resolve({ status: incoming.statusCode, headers: incoming.headers, body }));
    });
    outgoing.on('error', reject);
    outgoing.end();
  });
}

async function until<T>(read: () => T | undefined): Promise<T> {
  for (let turn = 0; turn < 2_500; turn++) {
    const value = read();
    if (value !== undefined) return value;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  return assert.fail('it did not happen within five seconds');
}

async function serve(t: TestContext, routes: Routes, { maxConnections = 16 } = {}) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const server = new HttpServer({
    name: 'metrics',
    address: '127.0.0.1',
    port: 0,
    maxConnections,
    routes,
    clock,
    log,
  });
  server.start();
  t.after(() => server.close());
  return { log, server, address: await until(() => server.address), clock };
}

const hello: Routes = new Map([['/hello', () => ({ status: 200, contentType: TEXT, body: 'grüß dich' })]]);

describe('a request', () => {
  test('for a known path is answered, whatever its query', async (t) => {
    const { address } = await serve(t, hello);
    for (const path of ['/hello', '/hello?x=1', '/hello?/other']) {
      const { status, headers, body } = await ask(address, path);
      assert.deepEqual([status, body, headers['content-type']], [200, 'grüß dich', 'text/plain; charset=utf-8']);
      assert.equal(headers['x-content-type-options'], 'nosniff');
    }
  });

  test('for another path gets Go’s 404', async (t) => {
    const { address } = await serve(t, hello);
    for (const path of ['/', '/hello/', '/HELLO', '/constructor', '/__proto__', '//hello', '/%68ello']) {
      const { status, headers, body } = await ask(address, path);
      assert.deepEqual([status, body], [404, '404 page not found\n'], path);
      assert.equal(headers['content-type'], 'text/plain; charset=utf-8');
    }
  });

  test('with HEAD gets the headers only', async (t) => {
    const { address } = await serve(t, hello);
    const { status, headers, body } = await ask(address, '/hello', 'HEAD');
    assert.deepEqual([status, body, headers['content-length']], [200, '', String(Buffer.byteLength('grüß dich'))]);
  });

  test('with any other method gets 405', async (t) => {
    const { address } = await serve(t, hello);
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
      const { status, headers } = await ask(address, '/hello', method);
      assert.deepEqual([status, headers.allow], [405, 'GET, HEAD'], method);
    }
  });

  test('that meets an error gets 500 and a sentence that gives nothing away; the log has the rest', async (t) => {
    const { address, log } = await serve(
      t,
      new Map([
        ['/throws', () => assert.fail('default/secret-service is broken')],
        ['/rejects', () => Promise.reject(new Error('default/secret-service is broken'))],
      ]),
    );
    for (const path of ['/throws', '/rejects']) {
      const { status, body } = await ask(address, path);
      assert.equal(status, 500);
      assert.doesNotMatch(body, /secret/);
    }
    assert.equal(log.of('error').length, 2);
    assert.match(String(log.of('error')[0]?.fields['err']), /secret-service is broken/);
  });

  test('whose client leaves before the answer is ready harms nobody', async (t) => {
    const { promise: mayAnswer, resolve: answerNow } = Promise.withResolvers<void>();
    const { promise: asked, resolve: isAsked } = Promise.withResolvers<void>();
    const slow = async () => {
      isAsked();
      await mayAnswer;
      return { status: 200, contentType: TEXT, body: 'late' };
    };
    const { address, clock } = await serve(t, new Map<string, () => ReturnType<typeof slow>>([['/slow', slow]]));
    const socket = connect(address.port, address.address);
    socket.on('error', () => {});
    socket.write('GET /slow HTTP/1.1\r\nHost: x\r\n\r\n');
    await asked;
    socket.resetAndDestroy();
    await until(() => (clock.pendingTimers === 0 ? true : undefined));
    answerNow();
    assert.equal((await ask(address, '/slow')).body, 'late');
  });

  test('that is no HTTP gets 400', async (t) => {
    const { address } = await serve(t, hello);
    const socket = connect(address.port, address.address);
    socket.setEncoding('utf8').end('nonsense\r\n\r\n');
    const [text] = await once(socket, 'data');
    assert.match(text, /^HTTP\/1\.1 400 /);
  });
});

describe('a client that dawdles', () => {
  // The limits are Node's own and run on real time.
  test('over its request, or sends nothing at all, loses its connection', { timeout: 15_000 }, async (t) => {
    const { address } = await serve(t, hello);
    const closed = (socket: Socket) => {
      socket.on('error', () => {});
      socket.resume();
      return once(socket, 'close');
    };
    const silent = connect(address.port, address.address);
    const partial = connect(address.port, address.address);
    partial.write('GET /hello HTTP/1.1\r\nHost:');
    await Promise.all([closed(silent), closed(partial)]);
  });

  test('over reading the answer loses its connection', async (t) => {
    const body = 'x'.repeat(32 * 1024 * 1024);
    const { address, clock } = await serve(t, new Map([['/big', () => ({ status: 200, contentType: TEXT, body })]]));
    const socket = connect(address.port, address.address);
    socket.on('error', () => {});
    socket.write('GET /big HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'readable');
    clock.advance(9_999);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    let received = 0;
    socket.on('data', (chunk) => {
      received += chunk.length;
    });
    await once(socket, 'close');
    assert.ok(received < body.length, `${received}`);
  });

  test('cannot bring more than its share of connections', async (t) => {
    const { address } = await serve(t, hello, { maxConnections: 2 });
    const open = () => once(connect(address.port, address.address), 'connect').then(() => {});
    await open();
    await open();
    await assert.rejects(ask(address, '/hello'));
  });
});

describe('an address that cannot be bound', () => {
  test('is told, retried every five seconds, and served as soon as it is free', async (t) => {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const { port } = holder.address() as AddressInfo;
    const clock = new ManualClock();
    const log = new RecordingLog();
    const server = new HttpServer({
      ...{ name: 'healthz', address: '127.0.0.1', port, maxConnections: 1 },
      ...{ routes: hello, clock, log },
    });
    t.after(() => server.close());
    server.start();
    await until(() => log.of('error')[0]);
    clock.advance(4_999);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    await until(() => log.of('error')[1]);
    assert.match(log.of('error')[1]?.message ?? '', /every 5 s; see --healthz-bind-address/);
    assert.deepEqual(log.of('error')[1]?.fields, {
      server: 'healthz',
      address: `127.0.0.1:${port}`,
      err: `listen EADDRINUSE: address already in use 127.0.0.1:${port}`,
    });
    holder.close();
    await once(holder, 'close');
    clock.advance(5_000);
    const address = await until(() => server.address);
    assert.equal((await ask(address, '/hello')).status, 200);
  });

  test('is given up when the server is closed', async (t) => {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    t.after(() => holder.close());
    const clock = new ManualClock();
    const log = new RecordingLog();
    const { port } = holder.address() as AddressInfo;
    const server = new HttpServer({
      ...{ name: 'healthz', address: '127.0.0.1', port, maxConnections: 1 },
      ...{ routes: hello, clock, log },
    });
    server.start();
    await until(() => log.of('error')[0]);
    await server.close();
    assert.equal(clock.pendingTimers, 0);
  });
});

describe('closing', () => {
  test('ends connections that are kept alive and frees the port', async (t) => {
    const { server, address } = await serve(t, hello);
    const socket = connect(address.port, address.address);
    socket.write('GET /hello HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'data');
    const gone = once(socket, 'close');
    await server.close();
    await gone;
    await assert.rejects(ask(address, '/hello'), { code: 'ECONNREFUSED' });
    assert.equal(server.address, undefined);
  });

  test('right after starting leaves nothing listening', async () => {
    const server = new HttpServer({
      ...{ name: 'healthz', address: '127.0.0.1', port: 0, maxConnections: 1 },
      ...{ routes: hello, clock: new ManualClock(), log: new RecordingLog() },
    });
    server.start();
    await server.close();
    server.start();
    for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(server.address, undefined);
  });
});

describe('the healthz address', () => {
  test('answers in upstream’s words: 200 and the time of asking while healthy', async (t) => {
    const clock = new ManualClock(Date.UTC(2026, 10, 20, 5, 23, 36, 843));
    const health = new Health(clock, 60_000);
    const { address } = await serve(
      t,
      healthzRoutes(health, () => undefined),
    );
    health.updated();
    clock.advance(1_000);
    const { status, headers, body } = await ask(address, '/healthz');
    const now = '2026-11-20 05:23:37.843 +0000 UTC m=+1.000000000';
    assert.equal(body, `{"lastUpdated": "${now}","currentTime": "${now}"}`);
    assert.equal(status, 200);
    assert.equal(headers['content-type'], 'application/json');
    assert.equal(headers['x-content-type-options'], 'nosniff');
  });

  test('answers 503 and the time of the last sync once syncing has been failing', async (t) => {
    const clock = new ManualClock(Date.UTC(2026, 10, 20, 5, 23, 36, 843));
    const health = new Health(clock, 60_000);
    const { address } = await serve(
      t,
      healthzRoutes(health, () => undefined),
    );
    health.queuedUpdate();
    clock.advance(60_000);
    const never = await ask(address, '/healthz');
    assert.equal(never.status, 503);
    assert.equal(
      never.body,
      '{"lastUpdated": "0001-01-01 00:00:00 +0000 UTC","currentTime": "2026-11-20 05:24:36.843 +0000 UTC m=+60.000000000"}',
    );
    health.updated();
    assert.equal((await ask(address, '/healthz')).status, 200);
    health.queuedUpdate();
    clock.advance(61_000);
    const { status, body } = await ask(address, '/healthz');
    assert.equal(status, 503);
    assert.equal(JSON.parse(body).lastUpdated, '2026-11-20 05:24:36.843 +0000 UTC m=+60.000000000');
  });

  test('shows how old the state of an API server is, without turning red for it', async (t) => {
    const api = { connected: false, lastContactAt: 0, listedAt: 0, staleForMs: 90_400 };
    const { address } = await serve(
      t,
      healthzRoutes(new Health(new ManualClock(), 60_000), () => api),
    );
    const { status, body } = await ask(address, '/healthz');
    assert.equal(status, 200);
    assert.deepEqual(JSON.parse(body).apiServer, { connected: false, staleForSeconds: 90 });
  });

  test('has nothing else', async (t) => {
    const { address } = await serve(
      t,
      healthzRoutes(new Health(new ManualClock(), 60_000), () => undefined),
    );
    for (const path of ['/metrics', '/proxyMode', '/']) assert.equal((await ask(address, path)).status, 404, path);
  });
});

describe('the metrics address', () => {
  const metricsWith = (stats: () => ServicePortStats[]) => {
    const clock = new ManualClock();
    return new Metrics({
      clock,
      version: '1',
      health: new Health(clock, 60_000),
      stats,
      droppedLogLines: () => 0,
      apiStatus: () => undefined,
    });
  };

  test('says ok, userspace, and the metrics', async (t) => {
    const name: ServicePortName = 'default/web';
    const counters = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
    const stats = () => [{ name, protocol: 'TCP' as const, localPort: 1, counters }];
    const { address } = await serve(t, metricsRoutes(metricsWith(stats)));
    assert.equal((await ask(address, '/healthz')).body, 'ok');
    const { body: mode, headers: modeHeaders } = await ask(address, '/proxyMode');
    assert.equal(mode, 'userspace');
    assert.equal(modeHeaders['content-type'], 'text/plain; charset=utf-8');
    const { status, headers, body } = await ask(address, '/metrics');
    assert.equal(status, 200);
    assert.equal(headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8');
    assert.match(body, /^userspace_proxy_connections_total\{namespace="default",service="web",/m);
    assert.match(body, /^kubeproxy_sync_proxy_rules_duration_seconds_bucket/m);
  });

  test('answers a scrape that fails with 500 and goes on', async (t) => {
    let broken = true;
    const { address } = await serve(t, metricsRoutes(metricsWith(() => (broken ? assert.fail('worker gone') : []))));
    assert.equal((await ask(address, '/metrics')).status, 500);
    broken = false;
    assert.equal((await ask(address, '/metrics')).status, 200);
  });
});
