import assert from 'node:assert/strict';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { Access, AccessSource } from '../../src/kubernetes/access.ts';
import { AgentPool } from '../../src/kubernetes/agent-pool.ts';
import { ApiClient } from '../../src/kubernetes/api-client.ts';
import { ApiError, type ApiErrorCode } from '../../src/kubernetes/api-error.ts';
import { FakeApiServer, type FakeApiServerOptions, sendJson, sendStatus } from '../fakes/fake-api-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { settle, until } from '../support/until.ts';
import { service } from './objects.ts';

const NEVER = new AbortController().signal;

async function startServer(t: TestContext, options: FakeApiServerOptions = {}): Promise<FakeApiServer> {
  const server = await FakeApiServer.start(options);
  t.after(() => server.stop());
  return server;
}

function createClient(
  t: TestContext,
  {
    url,
    access = {},
    qps = 1_000,
    burst = 1_000,
    env = {},
    currentAccess,
  }: { url: string } & Partial<{
    access: Partial<Access>;
    qps: number;
    burst: number;
    env: NodeJS.ProcessEnv;
    currentAccess: AccessSource['current'];
  }>,
) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const measured: { method: string; code: string; host: string }[] = [];
  const current: { -readonly [K in keyof Access]: Access[K] } = {
    server: new URL(url),
    tls: { skipVerify: false },
    headers: {},
    ...access,
  };
  let refusals = 0;
  const source: AccessSource = {
    current: currentAccess ?? (async () => ({ ...current })),
    refused: () => (refusals += 1),
  };
  const client = new ApiClient({
    access: source,
    server: current.server,
    qps,
    burst,
    userAgent: 'test/1',
    env,
    clock,
    log,
    metrics: { requestDone: ({ method, code, host }) => measured.push({ method, code, host }) },
  });
  t.after(() => client.close());
  return { client, clock, log, measured, current, refusals: () => refusals };
}

/** A client of a server of its own. */
async function connect(t: TestContext, options: Partial<Parameters<typeof createClient>[1]> = {}) {
  const server = await startServer(t);
  return { server, ...createClient(t, { url: server.url, ...options }) };
}

/** Whether the request failed as an ApiError of this kind; gives it. */
async function failure(request: Promise<unknown>, code: ApiErrorCode): Promise<ApiError> {
  const error = await request.then(
    () => assert.fail('the request should fail'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof ApiError, String(error));
  assert.equal(error.code, code, error.message);
  return error;
}

/** A port that accepts connections and never says a word. */
async function startMute(t: TestContext): Promise<{ url: string; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    socket.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `127.0.0.1:${(server.address() as { port: number }).port}`, sockets };
}

test('a GET gives the JSON; its headers say who asks and for what', async (t) => {
  const { server, client } = await connect(t, { access: { headers: { Authorization: 'Bearer secret' } } });
  server.set(service('web'));
  const list = (await client.get('/api/v1/services?limit=500', NEVER)) as { items: unknown[] };
  assert.equal(list.items.length, 1);
  const { headers, url } = server.requests[0] ?? assert.fail();
  assert.equal(url.searchParams.get('limit'), '500');
  assert.deepEqual(
    [headers['user-agent'], headers['accept'], headers['authorization']],
    ['test/1', 'application/json', 'Bearer secret'],
  );
});

test('a server may live under a path', async (t) => {
  const server = await startServer(t);
  server.misbehave('/k8s/clusters/c-1/api/v1/services', (_, response) => sendJson(response, 200, { here: true }));
  const { client } = createClient(t, { url: `${server.url}/k8s/clusters/c-1/` });
  assert.deepEqual(await client.get('/api/v1/services', NEVER), { here: true });
});

test('requests share one connection; at most two idle connections are kept', async (t) => {
  const { server, client } = await connect(t);
  for (let n = 0; n < 50; n += 1) await client.get('/api/v1/services', NEVER);
  assert.equal(server.connections, 1);
  await Promise.all(Array.from({ length: 5 }, () => client.get('/api/v1/services', NEVER)));
  assert.equal(server.connections, 5);
  await until('the others are closed', () => server.openConnections === 2);
});

test('the kernel looks after a silent connection, from 20 s on', async (t) => {
  const { server, client } = await connect(t);
  const began = performance.now();
  await client.watch('/api/v1/services?watch=1', NEVER);
  const [, expires = ''] = /02:([0-9A-F]{8})/.exec(timerOfConnectionTo(server.port)) ?? [];
  const seconds = Number.parseInt(expires, 16) / 100;
  const passed = (performance.now() - began) / 1_000;
  assert.ok(seconds <= 20 && seconds + passed > 19, `${seconds} s, ${passed} s after`);
});

test('a POST sends its body, and is not repeated', async (t) => {
  const { server, client } = await connect(t);
  let body = '';
  server.misbehave('/api/v1/events', (request, response) => {
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => sendJson(response, 201, { created: true }));
  });
  assert.deepEqual(await client.post('/api/v1/events', { kind: 'Event' }, NEVER), { created: true });
  assert.equal(body, '{"kind":"Event"}');
  server.misbehave('/api/v1/events', (request) => request.socket.resetAndDestroy());
  const reset = await failure(client.post('/api/v1/events', {}, NEVER), 'unreachable');
  assert.equal(reset.isUnsent, false);
  assert.equal(server.requests.length, 2);
});

test('what the server says when it refuses is in the error, with status and patience', async (t) => {
  const { server, client, refusals } = await connect(t);
  server.misbehave('/api', (_, response) => sendStatus(response, 429, 'slow down', { 'retry-after': '7' }));
  const busy = await failure(client.get('/api/v1/services', NEVER), 'status');
  assert.deepEqual([busy.status, busy.retryAfterMs, busy.message], [429, 7_000, 'HTTP 429: slow down']);
  server.misbehave('/api', (_, response) => sendStatus(response, 403, 'services is forbidden'));
  assert.equal((await failure(client.watch('/api/v1/services', NEVER), 'status')).status, 403);
  assert.equal(refusals(), 0);
  server.misbehave('/api', (_, response) => sendStatus(response, 401, 'Unauthorized'));
  assert.equal((await failure(client.get('/api/v1/services', NEVER), 'status')).status, 401);
  assert.equal(refusals(), 1);
  const anonymous = 'services is forbidden: User "system:anonymous" cannot list resource "services"';
  server.misbehave('/api', (_, response) => sendStatus(response, 403, anonymous));
  assert.equal((await failure(client.get('/api/v1/services', NEVER), 'status')).status, 403);
  assert.equal(refusals(), 2, 'the server has not accepted the credentials');
});

test('a refusal that is a web page, endless or silent does not get in the way', async (t) => {
  const { server, client, clock, measured } = await connect(t);
  server.misbehave('/api', (_, response) => {
    response.writeHead(502, { 'content-type': 'text/html', 'retry-after': 'soon' });
    response.end('<html>Bad gateway</html>');
  });
  const page = await failure(client.get('/api/v1/services', NEVER), 'status');
  assert.deepEqual([page.message, page.retryAfterMs], ['HTTP 502', undefined]);
  server.misbehave('/api', (_, response) => {
    response.writeHead(500);
    response.write('x'.repeat(100_000));
  });
  assert.equal((await failure(client.get('/api/v1/services', NEVER), 'status')).status, 500);
  server.misbehave('/api', (_, response) => {
    response.writeHead(503);
    response.flushHeaders();
  });
  const silent = failure(client.get('/api/v1/services', NEVER), 'status');
  await until('its head is there', () => measured.length === 3);
  clock.advance(10_000);
  assert.equal((await silent).status, 503);
});

test('an answer that is not JSON, or says that it is not, is garbage', async (t) => {
  const { server, client } = await connect(t);
  for (const [type, body] of [
    ['text/html', '<html>Sign in</html>'],
    ['application/vnd.kubernetes.protobuf', 'k8s'],
    ['', '{}'],
    ['application/json', '{"items":['],
  ] as const) {
    server.misbehave('/api', (_, response) => {
      response.writeHead(200, type === '' ? {} : { 'content-type': type });
      response.end(body);
    });
    await failure(client.get('/api/v1/services', NEVER), 'garbage');
  }
});

test('a watch is streamed, and ends with the response or with the failure of its connection', async (t) => {
  const { server, client } = await connect(t);
  const watch = async (end: (response: ServerResponse) => void) => {
    server.misbehave('/api', (_, response) => {
      response.writeHead(200, { 'content-type': 'application/json; stream=watch' });
      response.write('one\n');
      setImmediate(() => end(response));
    });
    const { body } = await client.watch('/api/v1/services?watch=1', NEVER);
    return body;
  };
  let text = '';
  for await (const chunk of await watch((response) => response.end('two\n'))) text += Buffer.from(chunk);
  assert.equal(text, 'one\ntwo\n');
  const broken = await watch((response) => response.socket?.resetAndDestroy());
  assert.match((await failure(drain(broken), 'unreachable')).message, /^127\.0\.0\.1:\d+: read ECONNRESET$/);
});

test('an aborted watch ends with the reason, and closes its connection', async (t) => {
  const { server, client } = await connect(t);
  const controller = new AbortController();
  const { body } = await client.watch('/api/v1/services?watch=1&sendInitialEvents=true', controller.signal);
  const ended = assert.rejects(drain(body), /silent/);
  controller.abort(new Error('silent'));
  await ended;
  await until('the server sees it', () => server.watches === 0);
  await assert.rejects(client.watch('/api/v1/services?watch=1', controller.signal), /silent/);
});

test('an abort is not lost before the first byte of a watch, nor while credentials are awaited', async (t) => {
  const { client } = await connect(t);
  const controller = new AbortController();
  const { body } = await client.watch('/api/v1/services?watch=1', controller.signal);
  controller.abort(new Error('stopped'));
  await assert.rejects(drain(body), /stopped/);

  const waiting = await connect(t, { currentAccess: () => new Promise(() => {}) });
  const second = new AbortController();
  const requests = [
    waiting.client.watch('/api/v1/services?watch=1', second.signal),
    waiting.client.get('/x', second.signal),
  ];
  const rejected = Promise.all(requests.map((request) => assert.rejects(request, /stopped/)));
  second.abort(new Error('stopped'));
  await rejected;
});

test('watches and events do not count against the rate limit, lists do', async (t) => {
  const { client, clock } = await connect(t, { qps: 1, burst: 2 });
  for (let n = 0; n < 5; n += 1) await client.post('/api/v1/namespaces/a/events', {}, NEVER).catch(() => {});
  for (let n = 0; n < 5; n += 1) await client.watch('/api/v1/services?watch=1', NEVER);
  let done = 0;
  for (let n = 0; n < 3; n += 1) client.get('/api/v1/services', NEVER).then(() => (done += 1));
  await until('the burst is through', () => done === 2);
  await settleIo();
  assert.equal(done, 2);
  clock.advance(1_000);
  await until('the third is through', () => done === 3);
});

test('a server that does not finish the handshake within 10 s, or does not answer within 30 s, is given up', async (t) => {
  const { url, sockets } = await startMute(t);
  const tls = createClient(t, { url: `https://${url}` });
  const connecting = failure(tls.client.watch('/api/v1/services?watch=1', NEVER), 'unreachable');
  await until('it is connected', () => sockets.length === 1);
  tls.clock.advance(10_000);
  const unconnected = await connecting;
  assert.match(unconnected.message, /^[^:]+:\d+: no connection within 10 s$/);
  assert.equal(unconnected.isUnsent, true);

  const { client, clock } = createClient(t, { url: `http://${url}` });
  const request = failure(client.watch('/api/v1/services?watch=1', NEVER), 'unreachable');
  // Of the two deadlines, that of the connection is cancelled.
  await until('the request is on its way', () => sockets.length === 2 && clock.pendingTimers === 1);
  clock.advance(29_999);
  await settleIo();
  assert.equal(sockets[1]?.destroyed, false);
  clock.advance(1);
  const unanswered = await request;
  assert.match(unanswered.message, /^[^:]+:\d+: no answer within 30 s$/);
  assert.equal(unanswered.isUnsent, false);
});

test('an answer may take as long as it likes; a minute of silence, or of a few bytes, ends it', async (t) => {
  const { server, client, clock, measured } = await connect(t);
  let response: ServerResponse | undefined;
  const ask = async () => {
    const asked = measured.length;
    server.misbehave('/api', (_, given) => {
      response = given;
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write('[');
    });
    const request = client.get('/api/v1/services', NEVER);
    await until('its head is there', () => measured.length > asked);
    return { request };
  };
  const slow = await ask();
  for (let n = 0; n < 5; n += 1) {
    clock.advance(59_000);
    response?.write(`1,${' '.repeat(4_094)}`);
    await until('it is read', () => client.lastContactAt === clock.now());
  }
  response?.end('2]');
  assert.deepEqual(await slow.request, [1, 1, 1, 1, 1, 2]);

  const silent = failure((await ask()).request, 'incomplete');
  await until('it is read', () => client.lastContactAt === clock.now());
  clock.advance(59_000);
  response?.write(' '.repeat(4_000));
  await until('it is read', () => client.lastContactAt === clock.now());
  clock.advance(1_000);
  assert.match((await silent).message, /no more of the answer came for 60 s/);
});

test('a GET accepts compressed answers of bounded size; a watch does not ask for them', async (t) => {
  const { server, client } = await connect(t);
  const list = { kind: 'List', text: 'x'.repeat(1_000_000) };
  const answer = (body: Uint8Array, encoding = 'gzip') =>
    server.misbehave('/api', (_, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': encoding });
      response.end(body);
    });
  const packed = gzipSync(JSON.stringify(list));
  for (let n = 0; n < 3; n += 1) {
    answer(packed);
    assert.deepEqual(await client.get('/api/v1/services', NEVER), list);
  }
  assert.equal(server.connections, 1);
  assert.equal(server.requests.at(-1)?.headers['accept-encoding'], 'gzip');

  answer(packed.subarray(0, 500));
  await failure(client.get('/api/v1/services', NEVER), 'garbage');
  answer(Buffer.from('{}'));
  await failure(client.get('/api/v1/services', NEVER), 'garbage');
  answer(packed, 'br');
  assert.match((await failure(client.get('/api/v1/services', NEVER), 'garbage')).message, /encoded as "br"/);
  server.misbehave('/api', (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    response.write(packed.subarray(0, 500), () => response.destroy());
  });
  await failure(client.get('/api/v1/services', NEVER), 'unreachable');

  // Many small members, which gzip allows to follow each other: 257 MiB of blanks in 260 KiB.
  answer(Buffer.concat(new Array<Uint8Array>(257).fill(gzipSync(Buffer.alloc(1 << 20, ' ')))));
  assert.match((await failure(client.get('/api/v1/services', NEVER), 'garbage')).message, /more than 268435456 bytes/);

  const { body } = await client.watch('/api/v1/services?watch=1', NEVER);
  assert.equal(server.requests.at(-1)?.headers['accept-encoding'], undefined);
  await body[Symbol.asyncIterator]().return?.();
});

test('a probe uses the credentials that worked last and accepts any answer within 10 s; probes share a request', async (t) => {
  const { server, client, clock, current } = await connect(t, { access: { headers: { Authorization: 'Bearer one' } } });
  await client.get('/api/v1/services', NEVER);
  current.headers = { Authorization: 'Bearer two' };
  server.misbehave('/livez', (_, response) => sendStatus(response, 500, 'etcd is sad'));
  await client.probe();
  assert.equal(server.requests.at(-1)?.headers['authorization'], 'Bearer one');

  server.misbehave('/livez', () => {});
  const before = server.requests.length;
  const probes = [client.probe(), client.probe()].map((probe) => failure(probe, 'unreachable'));
  await until('the server has the request', () => server.requests.length === before + 1);
  clock.advance(10_000);
  await Promise.all(probes);
  assert.equal(server.requests.length, before + 1);
  await client.probe();
});

test('every byte counts as contact', async (t) => {
  const { server, client, clock } = await connect(t);
  assert.equal(client.lastContactAt, undefined);
  const { body } = await client.watch('/api/v1/services?watch=1', NEVER);
  drain(body).catch(() => {});
  clock.advance(5_000);
  server.set(service('web'));
  await until('the event is read', () => client.lastContactAt === 5_000);
});

test('a GET is sent again when the server closes the idle connection that it took, and only then', async (t) => {
  const { server, client, measured } = await connect(t);
  const close = () => server.misbehave('/api', (request) => request.socket.destroy());
  close();
  await failure(client.get('/api/v1/services', NEVER), 'unreachable');
  await client.get('/api/v1/services', NEVER);
  close();
  await client.get('/api/v1/services', NEVER);
  await failure(client.get('/api/v1/nothing', NEVER), 'status');
  const host = `127.0.0.1:${server.port}`;
  assert.deepEqual(
    measured,
    ['<error>', '200', '200', '404'].map((code) => ({ method: 'GET', code, host })),
  );
});

test('a refused connection is reported with its address, once', async (t) => {
  const { client } = createClient(t, { url: 'http://127.0.0.1:1' });
  const { message, isUnsent } = await failure(client.get('/x', NEVER), 'unreachable');
  assert.deepEqual([message, isUnsent], ['127.0.0.1:1: connect ECONNREFUSED', true]);
});

test('the certificate must be valid, of the right authority and for the right name', async (t) => {
  const ours = new CertificateAuthority('ours');
  const theirs = new CertificateAuthority('theirs');
  const attempt = async (certificate: { key: string; cert: string }, access: Partial<Access>) => {
    const server = await startServer(t, { tls: certificate });
    const { client } = createClient(t, { url: server.url, access });
    return await client.get('/api/v1/services', NEVER);
  };
  const tls = { ca: ours.certificate.cert, skipVerify: false };
  await attempt(ours.issue(), { tls });
  await failure(attempt(theirs.issue(), { tls }), 'unreachable');
  await failure(attempt(ours.issue({ names: 'IP:127.0.0.2' }), { tls }), 'unreachable');
  await failure(attempt(ours.issue({ isExpired: true }), { tls }), 'unreachable');
  await failure(attempt(ours.issue(), { tls: { skipVerify: false } }), 'unreachable');
  await attempt(ours.issue({ names: 'DNS:kube' }), { tls: { ...tls, serverName: 'kube' } });
  await attempt(theirs.issue({ isExpired: true }), { tls: { ...tls, skipVerify: true } });

  t.after(() => delete process.env['NODE_TLS_REJECT_UNAUTHORIZED']);
  process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
  await failure(attempt(theirs.issue(), { tls }), 'unreachable');
});

test('a client certificate is shown to a server that asks for one', async (t) => {
  const authority = new CertificateAuthority('ours');
  const ca = authority.certificate.cert;
  const server = await startServer(t, { tls: { ...authority.issue(), ca } });
  const known = createClient(t, {
    url: server.url,
    access: { tls: { ca, ...authority.issue({ subject: 'us' }), skipVerify: false } },
  });
  await known.client.get('/api/v1/services', NEVER);
  const unknown = createClient(t, { url: server.url, access: { tls: { ca, skipVerify: false } } });
  await failure(unknown.client.get('/api/v1/services', NEVER), 'unreachable');
});

test('new certificates are used for new connections, while a watch over the old ones goes on', async (t) => {
  const one = new CertificateAuthority('one');
  const two = new CertificateAuthority('two');
  const server = await startServer(t, { tls: one.issue() });
  const { client, current } = createClient(t, {
    url: server.url,
    access: { tls: { ca: one.certificate.cert, skipVerify: false } },
  });
  const { body } = await client.watch('/api/v1/services?watch=1', NEVER);
  let events = 0;
  const reading = (async () => {
    for await (const _ of body) events += 1;
  })().catch(() => {});
  await client.get('/api/v1/services', NEVER);

  server.setCertificate(two.issue());
  current.tls = { ca: two.certificate.cert, skipVerify: false };
  await client.get('/api/v1/services', NEVER);
  server.set(service('web'));
  await until('the old watch still delivers', () => events === 1);
  await until('the idle one is closed', () => server.openConnections === 2);
  server.endWatches();
  await reading;
  await until('the old one is closed after it', () => server.openConnections === 1);
});

test('a certificate without its key changes nothing; as the first one it is an error', async (t) => {
  const authority = new CertificateAuthority('ours');
  const server = await startServer(t, { tls: authority.issue() });
  const [first, second] = [authority.issue({ subject: 'first' }), authority.issue({ subject: 'second' })];
  const tls = { ca: authority.certificate.cert, skipVerify: false };
  const { client, current } = createClient(t, { url: server.url, access: { tls: { ...tls, ...first } } });
  await client.get('/api/v1/services', NEVER);
  current.tls = { ...tls, cert: second.cert, key: first.key };
  await client.get('/api/v1/services', NEVER);
  assert.equal(server.connections, 1);

  const unusable = createClient(t, { url: server.url, access: { tls: { ...tls, cert: 'x', key: 'y' } } });
  await failure(unusable.client.get('/x', NEVER), 'credentials');
});

test('a proxy of the environment is used, but never for this machine; one of the kubeconfig is always used', async (t) => {
  const server = await startServer(t);
  const proxy = await startServer(t);
  const answerOf = async (options: Omit<Parameters<typeof createClient>[1], 'env'>) => {
    proxy.forgive();
    proxy.misbehave('/', (_, response) => sendJson(response, 200, { proxied: true }));
    const { client } = createClient(t, { ...options, env: { HTTP_PROXY: proxy.url, NO_PROXY: '192.0.2.0/24' } });
    return (await client.get('/api/v1/services', NEVER)) as { proxied?: true };
  };
  assert.equal((await answerOf({ url: 'http://api.example:6443' })).proxied, true);
  assert.equal((await answerOf({ url: server.url })).proxied, undefined);
  assert.equal(server.requests.length, 1);
  assert.equal((await answerOf({ url: server.url, access: { proxy: proxy.url } })).proxied, true);
});

/** `tr:tm->when` of the client's socket in /proc/net/tcp: 02 is the keepalive timer, then hundredths of a second. */
function timerOfConnectionTo(port: number): string {
  const remote = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const fields = readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .find(([, , to, state]) => to === remote && state === '01');
  return fields?.[5] ?? '';
}

async function drain(body: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of body);
}

/** Gives sockets on this machine the time to deliver what is under way. */
async function settleIo(): Promise<void> {
  for (let n = 0; n < 5; n += 1) {
    await new Promise((resolve) => setTimeout(resolve, 2));
    await settle(2);
  }
}

test('knows where the API server is: an address, or all that its name stands for', async (t) => {
  const server = await startServer(t);
  const { client } = createClient(t, { url: server.url });
  assert.deepEqual(client.servers, [{ address: '127.0.0.1', port: server.port }], 'also before it is asked');

  const named = createClient(t, { url: server.url.replace('127.0.0.1', 'localhost') }).client;
  assert.deepEqual(named.servers, []);
  await named.get('/api/v1/services', NEVER);
  const found = await lookup('localhost', { all: true });
  assert.deepEqual(
    named.servers,
    found.map(({ address }) => ({ address, port: server.port })),
  );

  const agents = new AgentPool({ server: new URL('https://server'), env: {}, log: new RecordingLog() });
  agents.agentFor({ server: new URL('https://[2001:db8::1]'), tls: { skipVerify: false }, headers: {} });
  assert.deepEqual(agents.servers, [{ address: '2001:db8::1', port: 443 }]);
});
