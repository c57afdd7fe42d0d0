import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { AccessConfigError } from '../../src/kubernetes/access.ts';
import { type ApiClientSettings, createApiClient } from '../../src/kubernetes/open-access.ts';
import { FakeApiServer } from '../fakes/fake-api-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { CertificateAuthority } from '../support/certificates.ts';

const NEVER = new AbortController().signal;

function setUp(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'kup-access-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const log = new RecordingLog();
  const create = async (options: Partial<ApiClientSettings>) => {
    const client = await createApiClient({
      kubeconfig: undefined,
      master: undefined,
      qps: 5,
      burst: 10,
      contentType: 'application/json',
      userAgent: 'test/1',
      env: {},
      clock: new ManualClock(),
      log,
      metrics: { requestDone: () => {} },
      serviceAccountDirectory: directory,
      ...options,
    });
    t.after(() => client.close());
    return client;
  };
  return { directory, log, create };
}

test('in a Pod, server and service account come from where the kubelet puts them, and are read again', async (t) => {
  const { directory, create } = setUp(t);
  const one = new CertificateAuthority('one');
  const two = new CertificateAuthority('two');
  const server = await FakeApiServer.start({ tls: one.issue() });
  t.after(() => server.stop());
  writeFileSync(join(directory, 'token'), 'first\n');
  writeFileSync(join(directory, 'ca.crt'), one.certificate.cert);
  const env = { KUBERNETES_SERVICE_HOST: '127.0.0.1', KUBERNETES_SERVICE_PORT: String(server.port) };
  const client = await create({ env });
  assert.equal(client.host, `127.0.0.1:${server.port}`);
  await client.get('/api/v1/services', NEVER);

  writeFileSync(join(directory, 'token'), 'second\n');
  writeFileSync(join(directory, 'ca.crt'), two.certificate.cert);
  server.setCertificate(two.issue());
  await client.get('/api/v1/services', NEVER);
  assert.deepEqual(
    server.requests.map(({ headers }) => headers['authorization']),
    ['Bearer first', 'Bearer second'],
  );
});

test('--master names the real server for a Pod, with its service account', async (t) => {
  const { directory, create } = setUp(t);
  writeFileSync(join(directory, 'token'), 'first');
  const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
  assert.equal((await create({ env, master: 'https://192.0.2.1:6443' })).host, '192.0.2.1:6443');
});

test('an IPv6 server of the environment gets its brackets', async (t) => {
  const { create } = setUp(t);
  const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443' };
  assert.equal((await create({ env })).host, '[fd00::1]:6443');
});

test('--master alone is asked without credentials; one without a scheme is plain HTTP', async (t) => {
  const { directory, create, log } = setUp(t);
  const server = await FakeApiServer.start();
  t.after(() => server.stop());
  const client = await create({ master: `127.0.0.1:${server.port}`, serviceAccountDirectory: join(directory, 'none') });
  await client.get('/api/v1/services', NEVER);
  assert.equal(server.requests[0]?.headers['authorization'], undefined);
  assert.deepEqual(log.lines, []);
});

test('plain HTTP to another machine is warned of', async (t) => {
  const { create, log } = setUp(t);
  await create({ master: 'http://192.0.2.1:8080' });
  assert.match(String(log.of('warn')[0]?.message), /plain HTTP/);
});

test('a kubeconfig goes before everything', async (t) => {
  const { directory, create } = setUp(t);
  const kubeconfig = join(directory, 'config');
  writeFileSync(
    kubeconfig,
    'clusters: [{name: c, cluster: {server: "https://192.0.2.7"}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n',
  );
  writeFileSync(join(directory, 'token'), 'first');
  const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
  assert.equal((await create({ kubeconfig, env })).host, '192.0.2.7');
  assert.equal((await create({ kubeconfig, env, master: 'https://192.0.2.1:6443' })).host, '192.0.2.1:6443');
});

for (const [what, options, message] of [
  ['no server at all', {}, /--kubeconfig FILE or --master URL/],
  ['NODE_TLS_REJECT_UNAUTHORIZED=0', { master: 'https://x', env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' } }, /unset it/],
  ['a --master that is no URL', { master: 'https://' }, /--master "https:\/\/" is no URL/],
  ['a kubeconfig that is not there', { kubeconfig: '/nonexistent' }, /\/nonexistent/],
] as const) {
  test(`${what} is refused with one sentence`, async (t) => {
    const { create } = setUp(t);
    await assert.rejects(create(options), (error) => error instanceof AccessConfigError && message.test(error.message));
  });
}

test('a wish for protobuf is accepted and noted', async (t) => {
  const { create, log } = setUp(t);
  await create({ master: 'https://192.0.2.1', contentType: 'application/vnd.kubernetes.protobuf' });
  assert.deepEqual(
    log.lines.map(({ level }) => level),
    ['info'],
  );
});
