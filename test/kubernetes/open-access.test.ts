import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { AccessConfigError } from '../../src/kubernetes/access.ts';
import { type ApiServersSettings, createApiServers } from '../../src/kubernetes/open-access.ts';
import { FakeApiServer } from '../fakes/fake-api-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { NO_API_SERVERS } from '../support/api-servers.ts';
import { CertificateAuthority } from '../support/certificates.ts';

const NEVER = new AbortController().signal;

function setUp(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'kup-access-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const log = new RecordingLog();
  const create = async (options: Partial<ApiServersSettings>) => {
    const client = await createApiServers({
      ...NO_API_SERVERS,
      clock: new ManualClock(),
      log,
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

test('--master alone is asked without credentials; one without a scheme is plain HTTP', async (t) => {
  const { directory, create, log } = setUp(t);
  const server = await FakeApiServer.start();
  t.after(() => server.stop());
  const client = await create({ master: `127.0.0.1:${server.port}`, serviceAccountDirectory: join(directory, 'none') });
  await client.get('/api/v1/services', NEVER);
  assert.equal(server.requests[0]?.headers['authorization'], undefined);
  assert.deepEqual(log.lines, []);
});

test('--master precedes a kubeconfig, and a kubeconfig precedes the environment of a Pod', async (t) => {
  const { directory, create } = setUp(t);
  const kubeconfig = join(directory, 'config');
  const text =
    'clusters: [{name: c, cluster: {server: "https://192.0.2.7"}}]\ncontexts: [{name: x, context: {cluster: c}}]';
  writeFileSync(kubeconfig, `${text}\ncurrent-context: x\n`);
  writeFileSync(join(directory, 'token'), 'first');
  const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443' };
  const master = 'https://192.0.2.1:6443';
  for (const [options, host] of [
    [{ env }, '[fd00::1]:6443'],
    [{ env, master }, '192.0.2.1:6443'],
    [{ env, kubeconfig }, '192.0.2.7'],
    [{ env, kubeconfig, master }, '192.0.2.1:6443'],
  ] as const) {
    assert.equal((await create(options)).host, host);
  }
});

test('what only the user can fix is refused with one sentence', async (t) => {
  const { create } = setUp(t);
  for (const [options, message] of [
    [{}, /--kubeconfig FILE or --master URL/],
    [{ master: 'https://x', env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' } }, /unset it/],
    [{ master: 'https://' }, /--master "https:\/\/" is no URL/],
    [{ kubeconfig: '/nonexistent' }, /\/nonexistent/],
  ] as const) {
    await assert.rejects(create(options), (error) => error instanceof AccessConfigError && message.test(error.message));
  }
});

test('plain HTTP to another machine is a warning; a wish for protobuf is noted', async (t) => {
  const { create, log } = setUp(t);
  await create({ master: 'http://192.0.2.1:8080', contentType: 'application/vnd.kubernetes.protobuf' });
  assert.deepEqual(log.lines.map(({ level }) => level), ['info', 'warn']); // biome-ignore format: short
  assert.match(String(log.of('warn')[0]?.message), /plain HTTP/);
});
