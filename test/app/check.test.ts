import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { machineChecks } from '../../src/app/check-machine.ts';
import { sourceChecks } from '../../src/app/check-source.ts';
import { CHECK, tools } from '../../src/app/subcommands.ts';
import { runChecks } from '../../src/operate/check/run-checks.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { FakeApiServer, sendJson, sendStatus } from '../fakes/fake-api-server.ts';
import { RecordingTerminal } from '../operate/command/recording-terminal.ts';
import { runCommand } from '../operate/command/run-command.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { parseCommandLine } from '../support/command-line.ts';

const SERVICE = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.100
  ports: [{port: 80}]
`;

/** Takes no port of this machine, even for a moment. */
const MODEST = ['--dataplane=node', '--healthz-bind-address=', '--metrics-bind-address='];

/** As a program runs it. */
async function run(...argv: readonly string[]) {
  let out = '';
  const write = (text: string) => {
    out += text;
  };
  const terminal = Object.assign(new RecordingTerminal(), { out: write });
  const code = await runCommand(CHECK, argv, terminal, tools);
  return { code, out };
}

/** The findings of one check of the source, as `level: what was found`; that of the machine is the same for all. */
async function findings(name: string, ...argv: readonly string[]): Promise<string[]> {
  const commandLine = parseCommandLine(argv);
  assert.ok(commandLine.kind === 'run');
  const told: string[] = [];
  for await (const { check: of, level, found } of runChecks(
    sourceChecks(commandLine.config, { services: [] }),
    systemClock,
  )) {
    if (of === name) told.push(`${level}: ${found}`);
  }
  return told;
}

describe('check', () => {
  let directory: string;

  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'kup-check-'));
  });

  after(() => rmSync(directory, { recursive: true }));

  const file = (name: string, text: string, mode = 0o600): string => {
    const path = join(directory, name);
    writeFileSync(path, text);
    chmodSync(path, mode);
    return path;
  };

  test('looks no further than flags that are wrong', async () => {
    const { code, out } = await run('--bind-address=0.0.0');
    assert.equal(code, 1);
    assert.match(out, /^fail {2}configuration {2}--bind-address "0\.0\.0": not an IP address; .* → /);
    assert.match(out, /\nThe proxy cannot serve here: 1 failure\.\n$/);
    assert.equal(out.trim().split('\n').length, 2);
    await assert.rejects(run('--bind-adress=0.0.0.0'), /did you mean --bind-address\?$/);
  });

  test('says where a configuration file is wrong', async () => {
    const path = file('config.conf', 'apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: [\n');
    const { code, out } = await run('--config', path);
    assert.equal(code, 1);
    assert.match(out, /^fail {2}configuration {2}--config \S+\/config\.conf:3: /);
  });

  test('is for runs, not for what else there is', async () => {
    assert.match((await run('--cleanup')).out, /^fail {2}configuration {2}these flags do not ask for a run/);
  });

  test('tells of flags without effect, as JSON for machines', async () => {
    const manifests = file('good.yaml', SERVICE);
    const { code, out } = await run('-o', 'json', '--manifests', manifests, '--masquerade-all', ...MODEST);
    const { ok, findings: all } = JSON.parse(out);
    assert.equal(ok, code === 0);
    const [valid, warning, ...others] = all;
    assert.deepEqual(valid, { check: 'configuration', level: 'ok', found: 'the flags are valid' });
    assert.match(warning.found, /^Accepted, but without effect in this proxy: --masquerade-all/);
    assert.ok(others.some(({ check: name }: { readonly check: string }) => name === 'engine'));
  });

  test('docs/operations.md explains every check, in order', () => {
    const chapter = readFileSync(join(import.meta.dirname, '../../docs/operations.md'), 'utf8').split('\n## ')[1] ?? '';
    const explained = [...chapter.matchAll(/^\| (?!check \||---)(.*?) \|/gm)].map(([, name = '']) => name);
    const namesWith = (...argv: readonly string[]) => {
      const commandLine = parseCommandLine(argv);
      assert.ok(commandLine.kind === 'run');
      const known = { services: [] };
      return [sourceChecks(commandLine.config, known), machineChecks(commandLine.config, known)].map((checks) =>
        checks.map(({ name }) => name),
      );
    };
    const [manifests = [], machine = []] = namesWith('--manifests=x');
    const [api = []] = namesWith();
    assert.deepEqual(explained, ['configuration', ...manifests, ...api, ...machine]);
  });

  describe('with manifests', () => {
    test('counts what is in them', async () => {
      const manifests = file('good.yaml', SERVICE);
      assert.deepEqual(await findings('manifests', '--manifests', manifests), [
        `ok: 1 Service with 1 port in ${manifests}`,
      ]);
    });

    test('says where one is wrong', async () => {
      const manifests = file('bad.yaml', `${SERVICE}---\n${SERVICE.replace('10.96.0.100', '127.0.0.1')}---\nkind: {\n`);
      const [, ...told] = await findings('manifests', '--manifests', manifests);
      assert.match(told.join('\n'), /^fail: A manifest file cannot be used.*file: \S+\/bad\.yaml:1\d, /m);
    });

    test('says that there is none', async () => {
      assert.deepEqual(await findings('manifests', '--manifests', '/nowhere'), [
        'fail: there is no file or directory "/nowhere" to read manifests from',
      ]);
    });
  });

  describe('with an API server', () => {
    const authority = new CertificateAuthority('test');
    let api: FakeApiServer;

    before(async () => {
      api = await FakeApiServer.start({ tls: authority.issue() });
    });

    after(() => api.stop());

    const kubeconfig = ({
      server = api.url,
      ca = authority.certificate.cert,
      user = {} as object,
      mode = 0o600,
    } = {}) =>
      file(
        'kubeconfig',
        JSON.stringify({
          clusters: [
            { name: 'c', cluster: { server, 'certificate-authority-data': Buffer.from(ca).toString('base64') } },
          ],
          users: [{ name: 'u', user }],
          contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
          'current-context': 'x',
        }),
        mode,
      );

    test('goes all the way', async () => {
      const path = kubeconfig({ user: { token: 'secret-token' } });
      api.misbehave('/version', (_request, response) => sendJson(response, 200, { gitVersion: 'v1.33.1' }));
      const told = await findings('API server', '--kubeconfig', path);
      assert.equal(told[0], `ok: 127.0.0.1:${api.port} answers over TLS, Kubernetes v1.33.1`);
      assert.match(told[1]!, /^ok: the clocks of both differ by \d s$/);
      assert.ok(api.requests.every(({ headers }) => headers.authorization === 'Bearer secret-token'));
    });

    test('knows of clashes between NodePorts of the cluster and programs of this machine', async (context) => {
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(0, resolve));
      context.after(() => server.close());
      const { port } = server.address() as AddressInfo;
      const web = { kind: 'Service', metadata: { name: 'web', namespace: 'shop' } };
      const spec = { type: 'NodePort', clusterIP: '10.96.0.9', ports: [{ port: 80, nodePort: port }] };
      api.set({ ...web, ...{ apiVersion: 'v1', spec } });
      context.after(() => api.delete(web));
      const { out } = await run('--kubeconfig', kubeconfig(), ...MODEST);
      assert.match(out, /^ok {4}Services {7}1 Service with 1 port$/m);
      const told = `warn  NodePorts      node (process ${process.pid}) listens at ${port}/TCP, the NodePort of shop/web: `;
      assert.ok(out.includes(told), out);
    });

    test('does not ask once more for Services that it may not list', async () => {
      api.misbehave('/api/v1/services', (_request, response) => sendStatus(response, 403, 'forbidden'));
      const { code, out } = await run('--kubeconfig', kubeconfig(), ...MODEST);
      assert.equal(code, 1);
      assert.match(out, /^fail {2}permissions {4}Service objects cannot be listed: HTTP 403, forbidden/m);
      assert.doesNotMatch(out, /^\w+ +Services /m);
    });

    test('asks for nothing that writes', async () => {
      api.requests.length = 0;
      await run('--kubeconfig', kubeconfig(), ...MODEST);
      const writes = api.requests.filter(({ method }) => method !== 'GET').map(({ url }) => url.pathname);
      assert.deepEqual([...new Set(writes)], ['/apis/authorization.k8s.io/v1/selfsubjectaccessreviews']);
    });

    test('tells credentials that are refused, and asks no further', async () => {
      api.misbehave('/version', (_request, response) => sendStatus(response, 401, 'Unauthorized'));
      const path = kubeconfig({ user: { token: 'old' } });
      assert.match(
        (await findings('API server', '--kubeconfig', path))[0]!,
        /^fail: .* does not accept the credentials/,
      );
      api.misbehave('/version', (_request, response) => sendStatus(response, 401, 'Unauthorized'));
      assert.deepEqual(await findings('permissions', '--kubeconfig', path), []);
    });

    test('tells an authority that did not sign the server’s certificate', async () => {
      const path = kubeconfig({ ca: new CertificateAuthority('other').certificate.cert });
      assert.match((await findings('API server', '--kubeconfig', path))[0]!, /^fail: .* not signed by an authority/);
    });

    test('tells a client certificate that the server does not take', async (context) => {
      const strict = await FakeApiServer.start({ tls: { ...authority.issue(), ca: authority.certificate.cert } });
      context.after(() => strict.stop());
      const path = kubeconfig({ server: strict.url });
      assert.match(
        (await findings('API server', '--kubeconfig', path))[0]!,
        /^fail: .* does not accept the client certificate/,
      );
    });

    test('tells a port where nobody listens', async () => {
      const path = kubeconfig({ server: 'https://127.0.0.1:1' });
      assert.match(
        (await findings('API server', '--kubeconfig', path))[0]!,
        /^fail: nothing listens at 127\.0\.0\.1:1 /,
      );
    });

    test('tells secrets that lie open, and certificates that have expired', async () => {
      const { cert, key } = authority.issue({ isExpired: true });
      const path = kubeconfig({
        user: { 'client-certificate': file('client.crt', cert), 'client-key': file('client.key', key, 0o644) },
      });
      const told = await findings('credentials', '--kubeconfig', path);
      assert.match(told[0]!, /^ok: .*kubeconfig gives a client certificate for https:/);
      assert.match(told[1]!, /^warn: .*client\.key holds a secret and can be read by every user/);
      assert.match(told[2]!, /^fail: the client certificate has expired/);
    });

    test('tells a token file that lies open', async () => {
      file('token', 'secret', 0o644);
      const told = await findings('credentials', '--kubeconfig', kubeconfig({ user: { tokenFile: 'token' } }));
      assert.match(told[0]!, /^ok: .*kubeconfig gives a token or password for https:/);
      assert.match(told[1]!, /^warn: \S*\/token holds a secret and can be read by every user/);
    });

    test('tells a token in a kubeconfig that everybody may read', async () => {
      const told = await findings('credentials', '--kubeconfig', kubeconfig({ user: { token: 't' }, mode: 0o644 }));
      assert.match(told.join('\n'), /^warn: The kubeconfig holds secrets and can be read by other users/m);
    });

    test('tells a kubeconfig that cannot be read, and goes on with the machine', async () => {
      const { out } = await run('--kubeconfig', '/nowhere', ...MODEST);
      assert.match(out, /^fail {2}credentials {4}the kubeconfig \/nowhere cannot be read/m);
      assert.match(out, /^ok {4}engine /m);
    });
  });
});
