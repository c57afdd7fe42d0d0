import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { AccessConfigError } from '../../src/kubernetes/access.ts';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { KubeconfigAccess } from '../../src/kubernetes/kubeconfig.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { isAlive } from '../support/processes.ts';
import { until } from '../support/until.ts';

interface Parts {
  readonly cluster?: object;
  readonly user?: object | undefined;
  readonly more?: object;
}

function kubeconfig({ cluster = {}, user = {}, more = {} }: Parts = {}): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster: { server: 'https://192.0.2.1:6443', ...cluster } }],
    users: [{ name: 'u', user }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
    ...more,
  });
}

function setUp(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'kup-kubeconfig-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const clock = new ManualClock();
  const log = new RecordingLog();
  const write = (name: string, text: string, mode = 0o600) => {
    const path = join(directory, name);
    writeFileSync(path, text);
    chmodSync(path, mode);
    return path;
  };
  const path = join(directory, 'config');
  const open = (text: string, { mode = 0o600, server }: { mode?: number; server?: URL } = {}) => {
    write('config', text, mode);
    return KubeconfigAccess.open({ path, server, clock, log });
  };
  /** How often the exec plugin was started. */
  const runs = () => readFileSync(join(directory, 'runs'), 'utf8').split('\n').length - 1;
  return { directory, path, clock, log, write, open, runs };
}

function pem(name: string): string {
  return `-----BEGIN CERTIFICATE-----\n${Buffer.from(name).toString('base64')}\n-----END CERTIFICATE-----\n`;
}

test('server, certificates and token come from the current context', async (t) => {
  const { open } = setUp(t);
  const data = (name: string) => Buffer.from(pem(name)).toString('base64');
  const access = await open(
    kubeconfig({
      cluster: { 'certificate-authority-data': data('ca'), 'tls-server-name': 'kube' },
      user: { token: 'secret\n', 'client-certificate-data': data('cert'), 'client-key-data': data('key') },
    }),
  );
  const { server, tls, headers } = await access.current();
  assert.equal(server.href, 'https://192.0.2.1:6443/');
  assert.deepEqual([tls.ca, tls.cert, tls.key].map(String), ['ca', 'cert', 'key'].map(pem));
  assert.deepEqual([tls.serverName, tls.skipVerify], ['kube', false]);
  assert.deepEqual(headers, { Authorization: 'Bearer secret' });
});

test("kubeadm's tokenFile, relative to the kubeconfig, precedes a token and may rotate or vanish", async (t) => {
  const { open, write, log } = setUp(t);
  const access = await open(kubeconfig({ user: { token: 'inline', tokenFile: 'token' } }));
  await assert.rejects(access.current(), (error) => error instanceof ApiError && /token/.test(error.message));
  const authorization = async () => (await access.current()).headers['Authorization'];
  const file = write('token', 'one\n');
  assert.equal(await authorization(), 'Bearer one');
  write('token', 'two');
  assert.equal(await authorization(), 'Bearer two');
  write('token', '');
  assert.equal(await authorization(), 'Bearer two');
  unlinkSync(file);
  assert.equal(await authorization(), 'Bearer two');
  assert.equal(log.of('warn').length, 1);
});

test('a token with a line break is no header: the reason names it and not the token', async (t) => {
  const { open, write, log } = setUp(t);
  const isRefused = (reason: RegExp) => (error: unknown) => {
    assert.ok(error instanceof ApiError && error.code === 'credentials');
    assert.match(error.message, reason);
    assert.doesNotMatch(error.message, /my-secret|evil/);
    return true;
  };
  write('token', 'my-secret\r\nX-Remote-User: evil\n');
  const fromFile = await open(kubeconfig({ user: { tokenFile: 'token' } }));
  await assert.rejects(fromFile.current(), isRefused(/the token file .* cannot be used: it holds a line break/));
  write('token', 'one\n');
  assert.equal((await fromFile.current()).headers['Authorization'], 'Bearer one');
  write('token', 'two\nthree');
  assert.equal((await fromFile.current()).headers['Authorization'], 'Bearer one', 'the last token is used');
  assert.equal(log.of('warn').length, 1);
  const inline = await open(kubeconfig({ user: { token: 'my-secret\nX-Remote-User: evil' } }));
  await assert.rejects(inline.current(), isRefused(/the kubeconfig gives credentials with a line break/));
});

test('certificate files are read again, relative to the kubeconfig', async (t) => {
  const { open, write } = setUp(t);
  for (const name of ['ca', 'cert', 'key']) write(name, pem(`${name} one`));
  const access = await open(
    kubeconfig({
      cluster: { 'certificate-authority': 'ca' },
      user: { 'client-certificate': 'cert', 'client-key': 'key' },
    }),
  );
  const read = async () => {
    const { ca, cert, key } = (await access.current()).tls;
    return [ca, cert, key].map(String);
  };
  assert.deepEqual(await read(), ['ca one', 'cert one', 'key one'].map(pem));
  for (const name of ['ca', 'cert', 'key']) write(name, pem(`${name} two`));
  assert.deepEqual(await read(), ['ca two', 'cert two', 'key two'].map(pem));
});

test('a kubeconfig that is replaced is used in its new form; one that is broken is not, and is reported once', async (t) => {
  const { open, write, log } = setUp(t);
  const access = await open(kubeconfig({ user: { token: 'one' } }));
  write('config', kubeconfig({ user: { token: 'two' } }));
  assert.equal((await access.current()).headers['Authorization'], 'Bearer two');
  write('config', 'clusters: [');
  assert.equal((await access.current()).headers['Authorization'], 'Bearer two');
  assert.equal((await access.current()).headers['Authorization'], 'Bearer two');
  assert.equal(log.of('error').length, 1);
  write('config', kubeconfig({ user: { token: 'three' } }));
  assert.equal((await access.current()).headers['Authorization'], 'Bearer three');
});

test('--master takes the place of the server', async (t) => {
  const { open } = setUp(t);
  const access = await open(kubeconfig({ user: { token: 'one' } }), { server: new URL('https://10.0.0.9:8443') });
  const { server, headers } = await access.current();
  assert.deepEqual([server.host, access.server.host], ['10.0.0.9:8443', '10.0.0.9:8443']);
  assert.equal(headers['Authorization'], 'Bearer one');
});

test('a context without a user is served without credentials, certificates included', async (t) => {
  const { open } = setUp(t);
  const access = await open(
    kubeconfig({
      cluster: { 'certificate-authority-data': Buffer.from(pem('ca')).toString('base64') },
      more: { users: null, contexts: [{ name: 'x', context: { cluster: 'c' } }] },
    }),
  );
  const { tls, headers } = await access.current();
  assert.deepEqual([String(tls.ca), headers], [pem('ca'), {}]);
});

test('user name, password, impersonation, plain HTTP and a proxy are possible', async (t) => {
  const { open } = setUp(t);
  const access = await open(
    kubeconfig({
      user: { username: 'me', password: 'secret', as: 'system:kube-proxy' },
      cluster: { server: 'http://127.0.0.1:8001', 'proxy-url': 'http://proxy:3128' },
    }),
  );
  const { headers, server, proxy } = await access.current();
  assert.deepEqual(headers, {
    Authorization: `Basic ${Buffer.from('me:secret').toString('base64')}`,
    'Impersonate-User': 'system:kube-proxy',
  });
  assert.deepEqual([server.protocol, proxy], ['http:', 'http://proxy:3128']);
});

test('verification that is switched off is warned of once', async (t) => {
  const { open, log } = setUp(t);
  const access = await open(kubeconfig({ cluster: { 'insecure-skip-tls-verify': true } }));
  assert.equal((await access.current()).tls.skipVerify, true);
  await access.current();
  assert.match(String(log.of('warn')[0]?.message), /insecure-skip-tls-verify/);
  assert.equal(log.of('warn').length, 1);
});

test('a file with secrets that others can read is warned of; one without is not', async (t) => {
  const { open, log } = setUp(t);
  await open(kubeconfig({ user: { token: 'secret' } }), { mode: 0o600 });
  await open(kubeconfig({ user: { tokenFile: 'token' } }), { mode: 0o644 });
  assert.deepEqual(log.lines, []);
  await open(kubeconfig({ user: { token: 'secret' } }), { mode: 0o644 });
  await open(kubeconfig({ user: { 'client-key-data': 'c2VjcmV0' } }), { mode: 0o640 });
  assert.equal(log.of('warn').length, 2);
});

const PLUGIN = `#!/bin/sh
echo run >>"$(dirname "$0")/runs"
#WAIT
printf '%s' "$KUBERNETES_EXEC_INFO" >"$(dirname "$0")/info"
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$TOKEN"
`;

function withPlugin(more: object = {}): string {
  const env = [{ name: 'TOKEN', value: 'from-plugin' }];
  return kubeconfig({
    user: { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: './plugin', env, ...more } },
  });
}

test('an exec plugin gives the token, gets what it needs, and runs again only after a refusal', async (t) => {
  const { open, write, directory, runs } = setUp(t);
  write('plugin', PLUGIN, 0o700);
  const access = await open(withPlugin({ provideClusterInfo: true }));
  await access.current();
  assert.equal((await access.current()).headers['Authorization'], 'Bearer from-plugin');
  const info = JSON.parse(readFileSync(join(directory, 'info'), 'utf8'));
  assert.deepEqual([info.kind, info.apiVersion], ['ExecCredential', 'client.authentication.k8s.io/v1']);
  assert.deepEqual([info.spec.interactive, info.spec.cluster.server], [false, 'https://192.0.2.1:6443']);
  assert.equal(runs(), 1);
  access.refused();
  await access.current();
  assert.equal(runs(), 2);
});

test('a plugin runs again once its answer has expired', async (t) => {
  const { open, write, clock, runs } = setUp(t);
  const expiry = new Date(clock.wallNow() + 60_000).toISOString();
  write('plugin', PLUGIN.replace('"token":"%s"', `"token":"%s","expirationTimestamp":"${expiry}"`), 0o700);
  const access = await open(withPlugin());
  await access.current();
  clock.advance(59_999);
  await access.current();
  assert.equal(runs(), 1);
  clock.advance(1);
  await access.current();
  assert.equal(runs(), 2);
});

for (const [what, answer] of [
  ['no status', '{}'],
  ['null', 'null'],
  ['an empty status', '{"status":{}}'],
  ['an empty token', '{"status":{"token":""}}'],
  ['a token that is a number', '{"status":{"token":5}}'],
  ['a certificate without its key', '{"status":{"clientCertificateData":"my-secret"}}'],
  ['an expiry that is not a time', '{"status":{"token":"my-secret","expirationTimestamp":"soon"}}'],
  ['no JSON', 'my-secret'],
] as const) {
  test(`an answer of a plugin with ${what} is refused, and the plugin runs again for the next request`, async (t) => {
    const { open, write, runs } = setUp(t);
    const bad = `echo run >>"$(dirname "$0")/runs"\n[ -e "$(dirname "$0")/well" ] || { echo '${answer}'; exit; }`;
    write('plugin', PLUGIN.replace(/^echo run.*$/m, bad), 0o700);
    const access = await open(withPlugin());
    for (let attempt = 1; attempt <= 2; attempt += 1) {
      await assert.rejects(access.current(), (error) => {
        assert.ok(error instanceof ApiError && error.code === 'credentials', String(error));
        assert.match(error.message, /the exec plugin gives no credentials: its /);
        return !error.message.includes('my-secret');
      });
      assert.equal(runs(), attempt);
    }
    write('well', '');
    assert.equal((await access.current()).headers['Authorization'], 'Bearer from-plugin');
    assert.equal(runs(), 3);
  });
}

test('a plugin may give a certificate with its key; what the kubeconfig says itself takes precedence', async (t) => {
  const { open, write } = setUp(t);
  const status = { token: 'from-plugin', clientCertificateData: pem('cert'), clientKeyData: pem('key') };
  write('plugin', `#!/bin/sh\ncat <<'.'\n${JSON.stringify({ status })}\n.\n`, 0o700);
  const { tls, headers } = await (await open(withPlugin())).current();
  assert.deepEqual([tls.cert, tls.key, headers], [pem('cert'), pem('key'), { Authorization: 'Bearer from-plugin' }]);
  const exec = { command: './plugin' };
  const inline = await (await open(kubeconfig({ user: { exec, token: 'inline' } }))).current();
  assert.deepEqual(inline.headers, { Authorization: 'Bearer inline' });
});

test('a plugin that hangs is killed after 30 s with all that it has started, and the next request starts another', async (t) => {
  const { open, write, directory, clock, runs } = setUp(t);
  const hang = '[ -e "$(dirname "$0")/go" ] || { sleep 1000 & echo $! $$ >"$(dirname "$0")/pids"; wait; }';
  write(
    'plugin',
    PLUGIN.replace('#WAIT', () => hang),
    0o700,
  );
  const access = await open(withPlugin());
  const failed = Promise.all([1, 2].map(() => assert.rejects(access.current(), /it did not end within 30 s/)));
  const pids = () => readFileSync(join(directory, 'pids'), 'utf8').trim().split(' ').map(Number);
  await until('it waits', () => existsSync(join(directory, 'pids')) && pids().length === 2);
  clock.advance(30_000);
  await failed;
  assert.equal(runs(), 1, 'requests at the same time share one run');
  await until('the plugin and its child have ended', () => !pids().some(isAlive));
  write('go', '');
  assert.equal((await access.current()).headers['Authorization'], 'Bearer from-plugin');
  assert.equal(runs(), 2);
});

test('a plugin whose output something else keeps open fails after 30 s', async (t) => {
  const { open, write, directory, clock } = setUp(t);
  const daemon = 'setsid sh -c \'echo $$ >"$0"; sleep 1000\' "$(dirname "$0")/pid" &';
  write(
    'plugin',
    PLUGIN.replace('#WAIT', () => daemon),
    0o700,
  );
  const access = await open(withPlugin());
  const failed = assert.rejects(access.current(), /it did not end within 30 s/);
  const pid = () => Number(readFileSync(join(directory, 'pid'), 'utf8'));
  await until('it waits', () => existsSync(join(directory, 'pid')) && pid() > 0);
  const daemonPid = pid();
  t.after(() => process.kill(-daemonPid, 'SIGKILL'));
  clock.advance(30_000);
  await failed;
});

test('a plugin has nothing to read, and may not print without end', async (t) => {
  const { open, write } = setUp(t);
  write('plugin', PLUGIN.replace('#WAIT', 'cat'), 0o700);
  assert.equal((await (await open(withPlugin())).current()).headers['Authorization'], 'Bearer from-plugin');
  write('plugin', '#!/bin/sh\nyes my-secret\n', 0o700);
  await assert.rejects((await open(withPlugin())).current(), /: it prints too much$/);
});

test('an auth-provider that gives no token is no reason for anonymous requests', async (t) => {
  const { open } = setUp(t);
  const access = await open(kubeconfig({ user: { 'auth-provider': { name: 'oidc', config: { 'client-id': 'me' } } } }));
  await assert.rejects(access.current(), (error) => error instanceof ApiError && /gives no token/.test(error.message));
});

test('a plugin that fails gives its reason, but never what it printed, which may be a token', async (t) => {
  const { open, write } = setUp(t);
  const errorOf = async (script: string) => {
    write('plugin', `#!/bin/sh\n${script}\n`, 0o700);
    const error = await (await open(withPlugin())).current().catch((reason: unknown) => reason);
    assert.ok(error instanceof ApiError && error.code === 'credentials', String(error));
    return error.message;
  };
  assert.doesNotMatch(await errorOf('echo my-secret-token'), /secret/);
  assert.match(await errorOf('echo "please log in" >&2\nexit 1'), /: please log in$/);
  assert.match(await errorOf('exit 3'), /: it ended with 3$/);
  assert.match(await errorOf('kill -9 $$'), /: it ended with SIGKILL$/);
});

const unusable: readonly [string, string, RegExp][] = [
  ['broken YAML', 'users:\n- user: {token: my-secret', /not valid YAML at line 2/],
  ['nothing', '', /not a YAML object/],
  ['a list', '[]', /not a YAML object/],
  ['no context', kubeconfig({ more: { 'current-context': '' } }), /current-context ""/],
  ['an unknown context', kubeconfig({ more: { 'current-context': 'y' } }), /current-context "y"/],
  ['a context of an unknown user', kubeconfig({ more: { users: [] } }), /no user "u"/],
  ['a cluster without a server', kubeconfig({ cluster: { server: '' } }), /server/],
  ['a server that is a number', kubeconfig({ cluster: { server: 6443 } }), /server is no text; put it in quotes/],
  ['a token that is a number', kubeconfig({ user: { token: 5 } }), /users\[0\]\.user\.token is no text/],
  ['no list of users', kubeconfig({ more: { users: {} } }), /its users are no list/],
  ['a user that is no object', kubeconfig({ more: { users: [1] } }), /users\[0\] is no object with a user/],
  ['an object as current-context', kubeconfig({ more: { 'current-context': {} } }), /current-context is no text/],
  ['a server of an unknown kind', kubeconfig({ cluster: { server: 'ftp://x' } }), /no URL of an API server/],
  ['credentials in the server', kubeconfig({ cluster: { server: 'https://me:my-secret@x' } }), /nothing else/],
  ['a SOCKS proxy', kubeconfig({ cluster: { 'proxy-url': 'socks5://my-secret@x' } }), /proxy-url/],
  ['an exec without a command', kubeconfig({ user: { exec: {} } }), /in the exec of its user "u": command is missing/],
  [
    'arguments that are no list',
    kubeconfig({ user: { exec: { command: 'x', args: 'y' } } }),
    /: args is "y"; expected/,
  ],
  ['an alias bomb', bomb(), /not valid YAML at line 5$/],
];

test('a kubeconfig that cannot be used is refused with one sentence that names the file and no secret', async (t) => {
  const { open, path, clock, log } = setUp(t);
  for (const [what, text, expected] of unusable) {
    const error = await open(text).catch((reason: unknown) => reason);
    assert.ok(error instanceof AccessConfigError, `${what}: ${error}`);
    const { message } = error;
    assert.match(message, expected);
    assert.ok(message.includes(path) && !message.includes('my-secret') && !message.includes('\n'), message);
  }
  const absent = KubeconfigAccess.open({ path: '/nonexistent/config', server: undefined, clock, log });
  await assert.rejects(absent, AccessConfigError);
});

function bomb(): string {
  const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]'];
  for (let n = 1; n < 10; n += 1) lines.push(`a${n}: &a${n} [${`*a${n - 1}, `.repeat(10)}]`);
  return lines.join('\n');
}

test('names that mean something to JavaScript do no harm', async (t) => {
  const { open } = setUp(t);
  const text = `
clusters: [{name: __proto__, cluster: {server: "https://192.0.2.1:6443", __proto__: {server: "https://evil"}}}]
users: [{name: constructor, user: {token: one, __proto__: {token: two}}}]
contexts: [{name: toString, context: {cluster: __proto__, user: constructor}}]
current-context: toString
__proto__: {polluted: true}
`;
  const { server, headers } = await (await open(text)).current();
  assert.deepEqual([server.host, headers], ['192.0.2.1:6443', { Authorization: 'Bearer one' }]);
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
});
