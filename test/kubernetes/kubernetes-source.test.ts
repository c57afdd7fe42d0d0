import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import {
  FakeApiServer,
  type FakeApiServerOptions,
  type Misdeed,
  sendJson,
  sendStatus,
} from '../fakes/fake-api-server.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { added, bookmark, endpoints, errorEvent, initialEventsEnd, service, slice } from './objects.ts';
import { watchServer } from './watching.ts';

const SERVICES = '/api/v1/services';
const SLICES = '/apis/discovery.k8s.io/v1/endpointslices';

async function startServer(t: TestContext, options: FakeApiServerOptions = {}): Promise<FakeApiServer> {
  const server = await FakeApiServer.start(options);
  t.after(() => server.stop());
  return server;
}

function head(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/json' });
}

function line(event: object): string {
  return `${JSON.stringify(event)}\n`;
}

/** Sends this as a watch that stays open. */
const open =
  (text: string): Misdeed =>
  (_, response) => {
    head(response);
    response.flushHeaders();
    response.on('error', () => {});
    response.write(text);
  };

/** Answers with this and the end of the response. */
const answer =
  (text: string, status = 200, headers: Record<string, string> = { 'content-type': 'application/json' }): Misdeed =>
  (_, response) =>
    response.writeHead(status, headers).end(text);

const refuse =
  (status: number, headers: Record<string, string> = {}): Misdeed =>
  (_, response) =>
    sendStatus(response, status, 'refused', headers);

const GHOST = line(added(service('ghost', { version: '5' })));
const HALF = '{"type":"ADDED","object":{"kind":"Ser';
const PAGE = '<html><body>Please sign in</body></html>\n';
const HTML = { 'content-type': 'text/html' };

/** Bad answers of a server, or of something between it and the proxy. */
const MISDEEDS: Readonly<Record<string, Misdeed>> = {
  'a line that is cut off': answer(`${GHOST}${HALF}\n`),
  'half a line and the end': answer(HALF),
  'a web page with 200': answer(PAGE, 200, HTML),
  'a web page that calls itself JSON': answer(PAGE),
  'an unknown event': open(line({ type: 'RENAMED', object: service('ghost', { version: '5' }) })),
  'an empty object': (_, response) => sendJson(response, 200, {}),
  'HTTP 401': refuse(401),
  'HTTP 403': refuse(403),
  'HTTP 429 with Retry-After': refuse(429, { 'retry-after': '2' }),
  'HTTP 500': refuse(500),
  'HTTP 503 with a web page': answer('<html>', 503, HTML),
  'HTTP 410': refuse(410),
  'a redirect': answer('', 302, { location: 'https://login.example/' }),
  'an ERROR event 410': answer(line(errorEvent(410, 'too old resource version'))),
  'an ERROR event 500': answer(line(errorEvent(500, 'etcd is sad'))),
  'a line of 50 MB': open('x'.repeat(50_000_000)),
  'a reset instead of an answer': (request) => request.socket.resetAndDestroy(),
  'a reset in the middle': (request, response) => {
    open(GHOST)(request, response);
    setTimeout(() => response.socket?.resetAndDestroy(), 5);
  },
  'an immediate end': answer(''),
  'no answer at all': () => {},
};

/** Answers that look like a healthy watch for a while. */
const PATIENCE: Readonly<Record<string, Misdeed>> = {
  'silence after the head': open(''),
  'a drip without lines': (_, response) => {
    head(response);
    const drip = setInterval(() => response.write('"'), 5);
    response.on('close', () => clearInterval(drip));
  },
  'nothing but bookmarks without an end': open(line(bookmark('101'))),
  'objects without the end of the list': open(GHOST),
};

// Side by side: they mostly wait for sockets.
describe('whatever the server answers', { concurrency: 8 }, () => {
  for (const [what, misdeed] of Object.entries({ ...MISDEEDS, ...PATIENCE })) {
    test(`${what} to the first list: the next ones bring everything, and nothing else`, async (t) => {
      const server = await startServer(t);
      server.set(service('web'));
      server.set(slice('web-1'));
      server.misbehave(SERVICES, misdeed);
      const { reach, has, synced } = await watchServer(t, server);
      await reach('it is synced', () => synced() === 1, 70_000);
      assert.deepEqual([has('Service shop/web'), has('EndpointSlice shop/web-1')], [true, true]);
      assert.equal(has('Service shop/ghost'), false);
    });

    test(`${what} to a new list: the state stands until the next one`, async (t) => {
      const server = await startServer(t);
      server.set(service('web'));
      server.set(service('old'));
      const { reach, has, synced, removed, clock } = await watchServer(t, server);
      await reach('it is synced', () => synced() === 1);
      clock.advance(12_000);
      server.misbehave(SERVICES, misdeed);
      server.misbehave(SERVICES, misdeed);
      server.inject(SERVICES, line(errorEvent(410, 'too old resource version')));
      server.delete(service('old'));
      server.set(service('late'));
      await reach('the new one is there', () => has('Service shop/late'), 140_000);
      assert.deepEqual(removed, ['Service shop/old']);
    });
  }

  for (const [what, misdeed] of Object.entries(MISDEEDS)) {
    test(`${what} to a watch: the state stands and the next one goes on`, async (t) => {
      const server = await startServer(t);
      server.set(service('web'));
      const { reach, has, synced, removed, clock } = await watchServer(t, server);
      await reach('it is synced', () => synced() === 1);
      clock.advance(12_000);
      server.misbehave(SERVICES, misdeed);
      server.endWatches();
      server.set(service('late'));
      await reach('the new one is there', () => has('Service shop/late'), 45_000);
      assert.ok(!removed.includes('Service shop/web'));
    });
  }
});

for (const [what, text] of [
  ['a line that is cut off', '{"type":"MODIFIED","object":{"kind":"Serv\n'],
  ['an unknown event', line({ type: 'RENAMED', object: service('web') })],
  ['a line of 50 MB', 'x'.repeat(50_000_000)],
  ['an ERROR event without a body', line({ type: 'ERROR' })],
] as const) {
  test(`${what} in the middle of a watch: what it hid is found`, async (t) => {
    const server = await startServer(t);
    server.set(service('web'));
    const { reach, has, synced, removed } = await watchServer(t, server);
    await reach('it is synced', () => synced() === 1);
    server.inject(SERVICES, text);
    server.set(service('late'));
    await reach('the new one is there', () => has('Service shop/late'));
    assert.deepEqual(removed, []);
  });
}

test('an object that was never valid is unusable, and a source that has its last good state serves it', async (t) => {
  const server = await startServer(t);
  const bad = service('web', { port: 'eighty', version: '2' });
  server.set(service('web'));
  const before = await watchServer(t, server);
  await before.reach('the valid one', () => before.has('Service shop/web'));
  server.set(bad);
  server.set(service('old', { port: -1 }));
  const after = await watchServer(t, server);
  await after.reach('the first lists', () => after.synced() === 1);
  const unusable = [...after.source.unusable()];
  assert.deepEqual(unusable.map(({ place }) => place).sort(), ['Service "shop/old"', 'Service "shop/web"']);
  assert.match(unusable[0]?.err ?? '', /^spec\.ports\[0\]\.port is /);
  assert.deepEqual(
    unusable.filter((each) => before.source.serves(each)).map(({ subject }) => subject),
    ['Service "shop/web"'],
  );
  assert.deepEqual(
    [...before.source.unusable()].filter((each) => before.source.serves(each)),
    [],
  );
});

test('an empty list is believed the second time', async (t) => {
  const server = await startServer(t);
  server.set(service('web'));
  const { reach, has, synced, removed, log } = await watchServer(t, server);
  await reach('it is synced', () => synced() === 1);
  server.misbehave(SERVICES, open(line(initialEventsEnd('200'))));
  server.inject(SERVICES, 'garbage\n');
  await reach('it is doubted', () => log.of('warn').some(({ message }) => /empty/.test(message)));
  assert.deepEqual(removed, []);
  await reach('the real one comes', () => server.watches === 2);
  assert.ok(has('Service shop/web'));
  server.delete(service('web'));
  await reach('a deletion takes it away', () => removed.length === 1);
});

test('nothing is synced before Services and endpoints have been listed', async (t) => {
  for (const path of [SERVICES, SLICES]) {
    const server = await startServer(t);
    server.misbehave(path, (_, response) => sendStatus(response, 500, 'etcd is sad'));
    const { reach, synced, source } = await watchServer(t, server);
    await reach('the other is watched', () => server.watches === 1);
    assert.deepEqual([synced(), source.status().connected, source.status().listedAt], [0, false, undefined]);
    await reach('both are', () => synced() === 1);
    assert.equal(source.status().connected, true);
  }
});

test('a server without streamed lists is paged through, 500 at a time', async (t) => {
  const server = await startServer(t, { streams: false });
  for (let n = 0; n < 1_201; n += 1) server.set(service(`s${n}`));
  const { reach, synced, applied, has } = await watchServer(t, server);
  await reach('it is synced', () => synced() === 1);
  assert.ok(has('Service shop/s1200'));
  assert.equal(applied(), 1);
  const pages = server.requests.filter(({ url }) => url.pathname === SERVICES && url.searchParams.has('limit'));
  assert.equal(pages.length, 3);
  server.set(service('late'));
  await reach('changes follow', () => has('Service shop/late'));
});

test('a server without slices is asked for Endpoints; when it has slices, Endpoints go', async (t) => {
  const lacks = [SLICES];
  const server = await startServer(t, { lacks });
  server.set(service('web'));
  server.set(endpoints('web'));
  // Services are there first.
  server.misbehave(SLICES, (_, response) => setTimeout(() => sendStatus(response, 404, 'not found'), 30));
  const { reach, synced, has, removed, source, log, clock } = await watchServer(t, server);
  await reach('it is synced', () => synced() === 1);
  assert.ok(has('Endpoints shop/web'));
  server.set(endpoints('db'));
  await reach('Endpoints are watched', () => has('Endpoints shop/db'));
  assert.equal(source.status().connected, true);
  assert.deepEqual(
    log.lines.filter(({ fields }) => fields['exchange'] === undefined).map(({ message }) => message.slice(0, 45)),
    [
      'The API server has no EndpointSlices (discove',
      'The first lists from the API server are compl',
      'Watching the API server',
    ],
  );

  lacks.length = 0;
  server.set(slice('web-1'));
  server.set(slice('db-1'));
  clock.advance(300_000);
  await reach('slices are there', () => has('EndpointSlice shop/web-1') && has('EndpointSlice shop/db-1'), 40_000);
  assert.deepEqual(removed.sort(), ['Endpoints shop/db', 'Endpoints shop/web']);
  assert.equal(synced(), 1);
  await reach('Endpoints are not watched any more', () => server.watches === 2, 40_000);
});

test('a server without Services has failed, and is asked again within seconds', async (t) => {
  const server = await startServer(t, { lacks: [SERVICES] });
  const { reach, synced, source, log } = await watchServer(t, server);
  const asked = () => server.requests.filter(({ url }) => url.pathname === SERVICES).length;
  await reach('it is asked again', () => asked() > 2);
  assert.deepEqual([synced(), source.status().connected], [0, false]);
  assert.match(String(log.of('warn')[0]?.fields['err']), /HTTP 404/);
});

test('a server that is away for an hour and comes back with few differences', async (t) => {
  const server = await startServer(t);
  server.set(service('a'));
  server.set(service('b'));
  server.set(slice('a-1'));
  const { reach, synced, has, log, removed, clock, source, applied } = await watchServer(t, server);
  await reach('it is synced', () => synced() === 1);
  const before = applied();
  const refuse: Misdeed = (request) => request.socket.resetAndDestroy();
  for (let n = 0; n < 2_000; n += 1) server.misbehave('/', refuse);
  server.resetConnections();
  await reach('it is noticed', () => !source.status().connected);
  for (let minute = 0; minute < 60; minute += 1) {
    for (let step = 0; step < 4; step += 1) {
      clock.advance(15_000);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }
  assert.ok(source.status().staleForMs >= 3_600_000);
  assert.ok(server.requests.length < 500, `${server.requests.length} requests`);
  assert.ok(log.of('warn').length < 12, `${log.of('warn').length} lines`);

  server.forgive();
  server.compact();
  server.set(service('c'));
  server.delete(service('b'));
  await reach('it is back', () => source.status().connected && has('Service shop/c'), 31_000);
  assert.deepEqual(removed, ['Service shop/b']);
  assert.equal(applied(), before + 1);
  assert.equal(source.status().staleForMs, 0);
  assert.match(String(log.of('info').at(-1)?.message), /again/);
});

for (const [how, end] of [
  ['in an orderly way', (server: FakeApiServer) => server.endWatches()],
  ['by a reset', (server: FakeApiServer) => server.resetConnections()],
] as const) {
  test(`where a load balancer ends watches after 5 s, ${how}, each change arrives within a second`, async (t) => {
    const server = await startServer(t);
    const { reach, synced, has, log, clock, source } = await watchServer(t, server);
    await reach('it is synced', () => synced() === 1);
    for (let n = 0; n < 8; n += 1) {
      // What arrives on both watches shows that both are open.
      server.set(service(`early-${n}`));
      server.set(slice(`early-${n}`));
      await reach('the watches', () => has(`Service shop/early-${n}`) && has(`EndpointSlice shop/early-${n}`), 1_000);
      clock.advance(5_000);
      end(server);
      server.set(service(`late-${n}`));
      await reach('the change', () => has(`Service shop/late-${n}`), 1_000);
    }
    assert.ok(source.status().connected);
    assert.deepEqual([log.of('warn'), log.of('error')], [[], []]);
  });
}

test('token and certificate authority rotate while it runs; no request is refused', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kup-rotation-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const [one, two] = [new CertificateAuthority('one'), new CertificateAuthority('two')];
  const server = await startServer(t, { tls: one.issue() });
  const rotate = (token: string, authority: CertificateAuthority) => {
    writeFileSync(join(directory, 'token'), `${token}\n`);
    writeFileSync(join(directory, 'ca.crt'), authority.certificate.cert);
    server.authorize = ({ authorization }: IncomingMessage['headers']) => authorization === `Bearer ${token}`;
  };
  rotate('first', one);
  const kubeconfig = join(directory, 'config');
  const cluster = { server: server.url, 'certificate-authority': 'ca.crt' };
  const config = {
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user: { tokenFile: 'token' } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  writeFileSync(kubeconfig, JSON.stringify(config), { mode: 0o600 });
  const { reach, synced, has, log, clock } = await watchServer(t, server, { kubeconfig });
  await reach('it is synced', () => synced() === 1);
  clock.advance(12_000);

  rotate('second', two);
  server.setCertificate(two.issue());
  server.set(service('between'));
  await reach('the old watch goes on', () => has('Service shop/between'));
  server.endWatches();
  server.set(service('late'));
  await reach('the new one is accepted', () => has('Service shop/late'));
  assert.deepEqual([log.of('warn'), log.of('error')], [[], []]);
  assert.equal(JSON.stringify(log.lines).includes('second'), false);
});
