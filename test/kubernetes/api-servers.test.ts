import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { createApiServers } from '../../src/kubernetes/open-access.ts';
import { type SourceEvent, serversText } from '../../src/model/source.ts';
import {
  FakeApiServer,
  type FakeApiServerOptions,
  type Misdeed,
  sendJson,
  sendPage,
  sendStatus,
} from '../fakes/fake-api-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { NO_API_SERVERS } from '../support/api-servers.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { endpointAddress, service as modelService } from '../support/model.ts';
import { until } from '../support/until.ts';
import { service } from './objects.ts';
import { watchServer } from './watching.ts';

const NEVER = new AbortController().signal;
const SLICES = '/apis/discovery.k8s.io/v1/endpointslices';
const MINUTE = 60_000;

async function startServer(t: TestContext, options: FakeApiServerOptions = {}): Promise<FakeApiServer> {
  const server = await FakeApiServer.start(options);
  t.after(() => server.stop());
  return server;
}

/** Two servers of one cluster and a source that prefers the first; it has the Service `web`. */
async function watchTwo(t: TestContext, others: readonly FakeApiServer[] = []) {
  const first = await startServer(t);
  const second = await startServer(t, { beside: first });
  first.set(service('web'));
  // The one that --master names comes last.
  const apiServers = [first, ...others].map(({ url }) => new URL(url));
  const watching = await watchServer(t, second, { apiServers });
  await watching.reach('the first list', () => watching.synced() === 1);
  // A watch that ends within a second is followed by the next only later.
  watching.clock.advance(1_500);
  return { first, second, ...watching };
}

const hostOf = ({ url }: FakeApiServer) => new URL(url).host;
const used = ({ api }: Awaited<ReturnType<typeof watchServer>>) =>
  api.status().find(({ usedSince }) => usedSince !== undefined)?.server;
/** Paths of what is watched, but for the question which cluster it is. */
const watches = ({ requests }: FakeApiServer) =>
  requests.flatMap(({ url }) => (url.searchParams.has('watch') && !url.searchParams.has('fieldSelector') ? url : []));

test('one server is used as it is, and never asked which cluster it is of', async (t) => {
  const server = await startServer(t);
  const { api, synced, reach } = await watchServer(t, server);
  await reach('the first list', () => synced() === 1);
  assert.ok(server.requests.every(({ url }) => !url.pathname.startsWith('/api/v1/namespaces/default')));
  assert.deepEqual(
    api.status().map(({ server: host, failure }) => [host, failure]),
    [[hostOf(server), undefined]],
  );
});

test('a server that ends is followed by the next within the same request, from the same version', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, has, removed, log, source } = watching;
  assert.equal(used(watching), hostOf(first));
  assert.equal(watches(second).length, 0);
  await first.stop();
  second.set(service('next'));
  await until('what has changed at the second', () => has('Service shop/next'));
  assert.equal(used(watching), hostOf(second));
  assert.equal(source.status().connected, true);
  assert.deepEqual(removed, []);
  assert.ok(
    watches(second).every(({ searchParams }) => searchParams.get('resourceVersion') !== null),
    'no list was needed',
  );
  assert.deepEqual(
    log.of('error').map(({ message, fields }) => [message, fields['server']]),
    [['An API server cannot be used; the others are asked', hostOf(first)]],
  );
  assert.match(String(log.of('error')[0]?.fields['err']), /^connect ECONNREFUSED$/);
});

test('a server that hangs is left after its probe, by all watches at once, and nothing is missed', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, reach, has, clock, api, source, log } = watching;
  first.isHung = true;
  const begun = clock.now();
  second.set(service('meanwhile'));
  await reach('what the first did not say', () => has('Service shop/meanwhile'), 45_000);
  assert.ok(clock.now() - begun <= 36_000, `${clock.now() - begun} ms`);
  await reach('both kinds are watched at the second', () => watches(second).length === 2, 1_000);
  assert.match(String(api.status()[0]?.failure?.err), /no answer to a probe/);
  assert.equal(source.status().connected, true);
  assert.equal(log.of('warn').length, 0, 'changes were late, not missed');
});

test('a watch that is silent although its server answers goes on at the next server', async (t) => {
  const watching = await watchTwo(t);
  const { second, reach } = watching;
  // The fake sends no bookmarks.
  await reach('the second is used', () => used(watching) === hostOf(second), 155_000);
});

test('a server of another cluster is left out, and nothing of it is seen', async (t) => {
  const other = await startServer(t, { cluster: 'cluster-2' });
  other.set(service('of-others'));
  const watching = await watchTwo(t, [other]);
  const { first, second, has, log, api } = watching;
  await first.stop();
  second.set(service('next'));
  await until('the third is used', () => has('Service shop/next'));
  assert.equal(used(watching), hostOf(second));
  assert.equal(has('Service shop/of-others'), false);
  const [, failure] = api.status();
  assert.match(String(failure?.failure?.err), /^it is of another cluster: .* the UID cluster-2, not cluster-1$/);
  assert.ok(log.of('error').some(({ fields }) => fields['server'] === hostOf(other)));
});

test('the UID of a cluster is that of the Service that is watched now', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, reach, api } = watching;
  const cluster = (uid: string) => {
    const object = service('kubernetes');
    return { ...object, metadata: { ...object.metadata, namespace: 'default', uid } };
  };
  first.set(cluster('made-again'));
  await reach('the UID is known', () => api.cluster === 'made-again', 1_000);
  first.set(cluster('cluster-1'));
  await reach('and the next', () => api.cluster === 'cluster-1', 1_000);
  await first.stop();
  second.set(service('next'));
  await until('the second is used', () => used(watching) === hostOf(second));
});

test('the preferred server is returned to after 5 to 10 minutes, from the same version', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, reach, has, clock, api, removed } = watching;
  first.isHung = true;
  await reach('the second is used', () => used(watching) === hostOf(second), 45_000);
  await reach('by both', () => watches(second).length === 2, 1_000);
  first.isHung = false;
  const before = watches(first).length;
  const begun = clock.now();
  await reach('the first is used', () => used(watching) === hostOf(first), 11 * MINUTE);
  assert.ok(clock.now() - begun >= 4 * MINUTE, `${clock.now() - begun} ms`);
  await reach('by both again', () => watches(first).length === before + 2, 1_000);
  await reach('and no more by the second', () => second.watches === 0, 1_000);
  assert.ok(
    watches(first)
      .slice(before)
      .every(({ searchParams }) => searchParams.get('resourceVersion') !== null),
    'no list was needed',
  );
  first.set(service('after'));
  await reach('a change', () => has('Service shop/after'), 1_000);
  assert.deepEqual([removed, api.status().map(({ failure }) => failure)], [[], [undefined, undefined]]);
});

test('a server in reserve that fails is found while another is used', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, reach, api } = watching;
  await second.stop();
  await reach('its fault', () => api.status()[1]?.failure !== undefined, 11 * MINUTE);
  assert.equal(used(watching), hostOf(first));
});

test('HTTP 500 and above is a reason to ask the next server, a refusal is none', async (t) => {
  const { first, second, api } = await watchTwo(t);
  first.misbehave(SLICES, (_, response) => sendStatus(response, 403, 'forbidden'));
  await assert.rejects(api.get(SLICES, NEVER), /HTTP 403/);
  first.misbehave(SLICES, (_, response) => sendStatus(response, 503, 'shutting down'));
  await api.get(SLICES, NEVER);
  assert.match(String(api.status()[0]?.failure?.err), /^HTTP 503/);
  assert.ok(second.requests.some(({ url }) => url.pathname === SLICES));
});

test('an event goes to the next server when the first is not reached, and nowhere when that may have it', async (t) => {
  const first = await startServer(t);
  const second = await startServer(t, { beside: first });
  const servers = { apiServers: [new URL(first.url)], master: second.url };
  const api = await createApiServers({
    ...NO_API_SERVERS,
    ...servers,
    clock: new ManualClock(),
    log: new RecordingLog(),
  });
  t.after(() => api.close());
  const events = '/api/v1/namespaces/shop/events';
  const written = ({ requests }: FakeApiServer) => requests.filter(({ method }) => method === 'POST').length;
  await api.get(SLICES, NEVER);
  first.misbehave(events, (_, response) => sendStatus(response, 503, 'shutting down'));
  await assert.rejects(api.post(events, {}, NEVER), /HTTP 503/);
  // No connection is left that the next one could take.
  first.misbehave(events, (request) => request.socket.destroy());
  await assert.rejects(api.post(events, {}, NEVER), /socket hang up/);
  assert.deepEqual([written(first), written(second)], [2, 0]);
  assert.equal(api.status()[0]?.failure, undefined, 'lists may still be read there');
  await first.stop();
  second.misbehave(events, (_, response) => sendJson(response, 201, { created: true }));
  assert.deepEqual(await api.post(events, {}, NEVER), { created: true });
  assert.match(String(api.status()[0]?.failure?.err), /ECONNREFUSED/);
});

const FOREIGN: readonly (readonly [string, Misdeed, RegExp])[] = [
  ['is not found', (_, response) => sendPage(response, 404, '404 page not found'), /^HTTP 404, which is not how /],
  ['wants HTTPS', (_, response) => sendPage(response, 400, 'HTTP request to an HTTPS server'), /^HTTP 400, .*https:/],
  ['leads elsewhere', (_, response) => response.writeHead(302, { location: '/login' }).end(), /^HTTP 302, which /],
  ['wants a password', (_, response) => sendPage(response, 401, 'who are you?'), /^HTTP 401, which is not /],
  ['has other credentials', (_, response) => sendStatus(response, 401, 'Unauthorized'), /^HTTP 401: Unauthorized$/],
  ['has other paths', (_, response) => sendStatus(response, 403, 'forbidden'), /^HTTP 403: forbidden$/],
];

/** Answers every request so. */
async function startOther(t: TestContext, misdeed: Misdeed): Promise<URL> {
  const server = createServer(misdeed);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

for (const [what, misdeed, err] of FOREIGN) {
  test(`a first entry that ${what} is left out, alone it is retried with the reason`, async (t) => {
    const other = await startOther(t, misdeed);
    const second = await startServer(t);
    second.set(service('web'));
    const several = await watchServer(t, second, { apiServers: [other] });
    await several.reach('the second is used', () => several.synced() === 1 && several.source.status().connected);
    assert.equal(used(several), hostOf(second));
    assert.match(String(several.api.status()[0]?.failure?.err), err);
    assert.equal(several.has('Service shop/web'), true);

    const alone = await watchServer(t, second, { master: other.href });
    await alone.reach('a reason', () => alone.log.of('warn').length > 0);
    assert.match(String(alone.log.of('warn')[0]?.fields['err']), err);
    for (const { log } of [several, alone]) {
      assert.deepEqual(
        log.of('info').filter(({ message }) => message.includes('has no EndpointSlices')),
        [],
      );
    }
  });
}

test('a server that becomes another web server is left, an old one without slices is not', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, api } = watching;
  const notFound: Misdeed = (_, response) => sendPage(response, 404, '404 page not found');
  first.misbehave(SLICES, notFound);
  await assert.rejects(api.get(SLICES, NEVER), /^ApiError: HTTP 404$/);
  assert.equal(used(watching), hostOf(first));
  first.misbehave(SLICES, notFound);
  first.misbehave('/api/v1/namespaces/default', notFound);
  await api.get(SLICES, NEVER);
  assert.equal(used(watching), hostOf(second));
});

test('entries with the same host and port have their URLs as names', async (t) => {
  const server = await startServer(t);
  const wrong = new URL(server.url.replace('http:', 'https:'));
  const { api, reach, synced } = await watchServer(t, server, { apiServers: [wrong] });
  await reach('the second is used', () => synced() === 1);
  assert.deepEqual(
    api.status().map((each) => [each.server, each.failure === undefined]),
    [
      [wrong.href.replace(/\/$/, ''), false],
      [server.url, true],
    ],
  );
});

test('while none can be used, each is asked once per try, and what is said is of the one that was used', async (t) => {
  const watching = await watchTwo(t);
  const { first, second, reach, source, log } = watching;
  await Promise.all([first.stop(), second.stop()]);
  await reach('the loss', () => !source.status().connected, 5_000);
  const [line] = log.of('warn');
  assert.equal(line?.message, 'Cannot watch the API server; the last known state is served until it is back');
  assert.equal(line?.fields['server'], hostOf(first));
  assert.ok(watching.api.status().every(({ failure }) => failure !== undefined));
  const lines = serversText(source.status(), watching.clock.wallNow(), () => '1m');
  const err = 'failing for 1m: connect ECONNREFUSED';
  assert.deepEqual(lines, [`${hostOf(first)}: used last, ${err}`, `${hostOf(second)}: ${err}`]);
});

test('of a single server, too, it is known what is wrong with it', async (t) => {
  const server = await startServer(t);
  const { source, reach, synced, clock } = await watchServer(t, server);
  const text = () => serversText(source.status(), clock.wallNow(), () => '1m');
  await reach('the first list', () => synced() === 1 && source.status().connected);
  assert.deepEqual(text(), [`${hostOf(server)}: in use for 1m`]);
  // A watch that ends within a second is followed by the next only later.
  clock.advance(1_500);
  server.authorize = () => false;
  server.endWatches();
  await reach('the refusal', () => !source.status().connected);
  assert.match(text().join(), new RegExp(`^${hostOf(server)}: HTTP 40[13]`));
  await server.stop();
  await reach('the loss', () => text().join() === `${hostOf(server)}: connect ECONNREFUSED`);
});

test('a stop does not wait for a server that hangs', async (t) => {
  const first = await startServer(t);
  first.isHung = true;
  const second = await startServer(t, { beside: first });
  const { source, reach } = await watchServer(t, second, { apiServers: [new URL(first.url)] });
  await reach('it is asked', () => first.requests.length > 0, 1_000);
  await source.stop();
});

/** The settings of a Pod that trusts this authority. */
function inPod(t: TestContext, authority: CertificateAuthority, master: FakeApiServer) {
  const directory = mkdtempSync(join(tmpdir(), 'kup-servers-'));
  t.after(() => rmSync(directory, { recursive: true }));
  writeFileSync(join(directory, 'token'), 'secret');
  writeFileSync(join(directory, 'ca.crt'), authority.certificate.cert);
  return { master: master.url, apiServersFromCluster: true, serviceAccountDirectory: directory };
}

/** What the endpoints of default/kubernetes say. */
function named(...servers: readonly FakeApiServer[]): SourceEvent[] {
  const ports = servers.map(({ port }) => ({ name: `https-${port}`, protocol: 'TCP' as const, port }));
  const group = { addresses: [endpointAddress('127.0.0.1')], ports };
  const key = 'default/kubernetes';
  return [{ kind: 'EndpointSlice', key, value: { key, service: key, group } }];
}

test('a server that the cluster names needs a certificate for the name of the API server, by its authority', async (t) => {
  const authority = new CertificateAuthority('cluster');
  const first = await startServer(t, { tls: authority.issue() });
  const tls = authority.issue({ names: 'DNS:kubernetes.default.svc' });
  const second = await startServer(t, { tls, beside: first });
  const kubelet = await startServer(t, { tls: authority.issue(), beside: first });
  const watching = await watchServer(t, first, inPod(t, authority, first));
  const { api, reach, synced, has } = watching;
  await reach('the first list', () => synced() === 1);
  api.learn(named(kubelet, second));
  assert.equal(api.status().length, 3);
  // A watch that ends within a second is followed by the next only later.
  watching.clock.advance(1_500);
  await first.stop();
  second.set(service('next'));
  await until('the second is used', () => has('Service shop/next'));
  assert.equal(used(watching), hostOf(second));
  assert.match(String(api.status()[1]?.failure?.err), /kubernetes\.default\.svc|altnames/);
  assert.equal(kubelet.requests.length, 0, 'it gets no credentials');
  api.learn(named(second));
  assert.deepEqual(
    api.status().map(({ server }) => server),
    [hostOf(first), hostOf(second)],
  );
});

test('servers that an earlier process knew are used until the cluster says where they are now', async (t) => {
  const authority = new CertificateAuthority('cluster');
  const tls = authority.issue({ names: 'DNS:kubernetes.default.svc' });
  const first = await startServer(t, { tls });
  const second = await startServer(t, { tls, beside: first });
  const third = await startServer(t, { tls, beside: first });
  second.set(service('web'));
  // It boots while the server that it is configured with is away.
  await first.stop();
  const watching = await watchServer(t, first, inPod(t, authority, first));
  const { api, reach, synced, has } = watching;
  await reach('it is missed', () => !watching.source.status().connected, 5_000);
  // Of which cluster that was counts for nothing: the file may be older than this cluster.
  api.recall([
    { kind: 'Service', key: 'default/kubernetes', value: modelService({ uid: 'before' }) },
    ...named(second),
  ]);
  assert.deepEqual(
    api.status().map(({ server }) => server),
    [hostOf(first), hostOf(second)],
  );
  await reach('the one that was known is used', () => synced() === 1, 30_000);
  assert.deepEqual([used(watching), has('Service shop/web')], [hostOf(second), true]);
  api.learn(named(third));
  assert.deepEqual(
    api.status().map(({ server }) => server),
    // The one that is used goes on until it fails.
    [hostOf(first), hostOf(third), hostOf(second)],
  );
});

test('without a certificate authority, a server that the cluster names gets no request', async (t) => {
  const first = await startServer(t);
  const second = await startServer(t, { tls: new CertificateAuthority('any').issue(), beside: first });
  const { api, reach, synced } = await watchServer(t, first, { apiServersFromCluster: true });
  await reach('the first list', () => synced() === 1);
  api.learn(named(second));
  await first.stop();
  await reach('it is tried', () => api.status()[1]?.failure !== undefined, 5_000);
  assert.match(String(api.status()[1]?.failure?.err), /only with a certificate-authority/);
  assert.equal(second.connections, 0);
});
