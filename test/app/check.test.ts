import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { checkEngine, checksOf } from '../../src/app/check.ts';
import { CHECK, tools } from '../../src/app/subcommands.ts';
import { runChecks } from '../../src/check/run-checks.ts';
import { REQUEST_MS, sourceChecks } from '../../src/check/source.ts';
import { parse } from '../../src/cli/parser.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { findingText } from '../../src/model/finding.ts';
import type { SavedObject } from '../../src/model/saved-object.ts';
import { DISK } from '../../src/state/disk.ts';
import { bodyOf, type Head } from '../../src/state/format.ts';
import { StateFile } from '../../src/state/state-file.ts';
import type { Clock } from '../../src/util/clock.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { finished } from '../../src/util/wait.ts';
import { RecordingTerminal } from '../cli/recording-terminal.ts';
import { runCommand } from '../cli/run-command.ts';
import { FakeApiServer, sendJson, sendPage, sendStatus } from '../fakes/fake-api-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { parseCommandLine } from '../support/command-line.ts';

const SERVICE = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.100
  ports: [{port: 80}]
`;

const ENDPOINTS = `---
apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: shop}
subsets: [{addresses: [{ip: 10.244.1.7}], ports: [{port: 8080}]}]
`;

const STATE_AT = Date.UTC(2026, 10, 20, 8);

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

/** A directory for `--state-dir` of this node, with these objects. */
async function stateOf(directory: string, head: Pick<Head, 'source'>, objects: readonly SavedObject[]) {
  mkdirSync(directory, { mode: 0o700 });
  const file = new StateFile({ directory, files: DISK, clock: systemClock });
  const written = { ...head, node: 'node-1', bootId: 'boot-1', program: '1.0.0', writtenAt: STATE_AT };
  await file.write(written, await finished(systemClock, bodyOf(objects)));
  utimesSync(file.path, STATE_AT / 1_000, STATE_AT / 1_000);
  return ['--hostname-override=node-1', '--state-dir', directory] as const;
}

/** The findings of the checks of the source alone, as `check level: what was found → what to do`. */
async function findings(
  argv: readonly string[],
  { clock = systemClock as Clock, families = ['IPv4'] as readonly IpFamily[] } = {},
): Promise<string[]> {
  const commandLine = parseCommandLine(argv);
  assert.ok(commandLine.kind === 'run');
  const lines: string[] = [];
  const checks = sourceChecks(commandLine.config, { services: [] }, families, clock);
  for await (const { check: name, level, advice, ...finding } of runChecks(checks, clock)) {
    lines.push(`${name} ${level}: ${findingText(finding)}${advice === undefined ? '' : ` → ${advice}`}`);
  }
  return lines;
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

  test('has a row in docs/install.md for each of its parts, in order', () => {
    const page = readFileSync(join(import.meta.dirname, '../../docs/install.md'), 'utf8');
    const [, table = ''] = page.split('| check | what is looked at |');
    const rows = [...(table.split('\n\n')[0] ?? '').matchAll(/^\| (?!---)(.*?) \|/gm)].map(([, name]) => name);
    const names = (...argv: string[]) => checksOf(parse(argv, []).flags).map(({ name }) => name);
    const ofFiles = names('--manifests=x');
    const ofServer = names('--kubeconfig=x');
    assert.deepEqual(
      rows.filter((name) => name !== 'manifests'),
      ofServer,
    );
    assert.deepEqual(
      rows.filter((name) => name === 'manifests' || ofFiles.includes(name ?? '')),
      ofFiles,
    );
  });

  test('says whether the fast engine can run, and whether its workers have a core each', async () => {
    const [cores, fine] = [availableParallelism(), async () => {}];
    const broken = () => Promise.reject(new Error('koffi does not load'));
    for (const [engine, workers, selfCheck, level, found] of [
      ['auto', cores, fine, 'ok', /^the fast engine can run here, with \d+ workers? on \d+ cores?$/],
      ['auto', cores + 1, fine, 'warn', /^the fast engine can run here, with/],
      [
        'auto',
        cores,
        broken,
        'warn',
        /^the fast engine cannot run here: koffi does not load; the portable one is used/,
      ],
      ['fast', cores, broken, 'fail', /^the fast engine cannot run here: koffi does not load$/],
      ['node', cores, broken, 'ok', /^the portable engine/],
    ] as const) {
      const [finding, ...others] = await checkEngine({ engine, workers }, selfCheck);
      assert.equal(finding?.level, level, finding?.found);
      assert.match(finding?.found ?? '', found);
      assert.deepEqual(others, []);
    }
  });

  test('names the packages of the capture that was asked for', async (t) => {
    const path = process.env['PATH'];
    t.after(() => {
      process.env['PATH'] = path;
    });
    process.env['PATH'] = directory;
    for (const [capture, packages] of [
      ['nft', '"nftables"'],
      ['auto', '"iptables" or "nftables"'],
    ] as const) {
      const checks = checksOf(parse([`--capture=${capture}`, '--manifests=x'], []).flags);
      const findings = (await checks.find(({ name }) => name === 'capture')?.run()) ?? [];
      const advice = `install Debian's package ${packages}, and load its kernel modules`;
      assert.deepEqual(
        findings.map((finding) => [finding.level, finding.advice]),
        [['fail', advice]],
      );
    }
  });

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

  test('is for runs alone', async () => {
    assert.match((await run('--cleanup')).out, /^fail {2}configuration {2}these flags are not for a run/);
  });

  test('reports flags without effect, as JSON for machines', async () => {
    const manifests = file('good.yaml', SERVICE);
    const { code, out } = await run('-o', 'json', '--manifests', manifests, '--ipvs-strict-arp', ...MODEST);
    const { ok, findings: all } = JSON.parse(out);
    assert.equal(ok, code === 0);
    const [valid, warning, ...others] = all;
    assert.deepEqual(valid, { check: 'configuration', level: 'ok', found: 'the flags are valid' });
    assert.match(warning.found, /^Accepted, but without effect in this proxy: --ipvs-strict-arp/);
    assert.ok(others.some(({ check: name }: { readonly check: string }) => name === 'engine'));
  });

  test('a broken file whose last good state is on disk is a warning; one without is a failure', async () => {
    const [known, unknown] = [file('known.yaml', SERVICE + ENDPOINTS), file('unknown.yaml', 'kind: [\n')];
    const metadata = { name: 'web', namespace: 'shop' };
    const service = {
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      spec: { clusterIP: '10.96.0.100', ports: [{ port: 80 }] },
    };
    const at = { file: known, document: 1, line: 1 };
    const state = await stateOf(join(directory, 'of-files'), { source: 'manifests' }, [{ object: service, at }]);
    writeFileSync(known, 'kind: [\n');
    const lines = await findings(['--manifests', `${known},${unknown}`, ...state]);
    assert.match(lines[0]!, /^state ok: .*of-files\/last-state has the state of 2026-11-20T08:00:00/);
    assert.match(lines[1]!, /^manifests ok: 1 Service with 1 port in /);
    const faults = lines.filter((line) => line.includes('cannot be used')).sort();
    assert.equal(faults.length, 2, lines.join('\n'));
    assert.match(
      faults[0]!,
      /^manifests fail: A manifest file cannot be used; nothing of it is served: .*unknown\.yaml/,
    );
    assert.match(
      faults[1]!,
      /^manifests warn: A manifest file cannot be used; its last good state is kept: .*known\.yaml/,
    );
  });

  test('says what keeps --state-dir from its use, and leaves none behind', async () => {
    const manifests = file('good.yaml', SERVICE + ENDPOINTS);
    const torn = join(directory, 'torn');
    mkdirSync(torn, { mode: 0o700 });
    writeFileSync(join(torn, 'last-state'), 'torn\n', { mode: 0o600 });
    const fresh = join(directory, 'deep/fresh');
    for (const [path, finding] of [
      [fresh, /^state ok: there is no state in .*fresh yet$/],
      [
        manifests,
        /^state warn: .*: \S+good.yaml is no directory; remove it, or give another --state-dir \(\S+\) → correct that/,
      ],
      [`${manifests}/below`, /^state warn: .*: the directory \S+below cannot be made \(ENOTDIR\); make it, or give/],
      ['/proc/nope', /^state warn: .*: the directory \/proc\/nope cannot be made \(\w+\); make it, or give another/],
      [torn, /^state warn: .*: it is torn or damaged/],
    ] as const) {
      const [first] = await findings(['--manifests', manifests, '--state-dir', path]);
      assert.match(first ?? '', finding);
    }
    assert.equal(existsSync(join(directory, 'deep')), false);
  });

  test('counts what is in manifests, and says where one is wrong', async () => {
    const good = file('good.yaml', SERVICE + ENDPOINTS);
    assert.deepEqual(await findings(['--manifests', good]), [`manifests ok: 1 Service with 1 port in ${good}`]);
    const bad = file('bad.yaml', `${SERVICE}---\n${SERVICE.replace('10.96.0.100', '127.0.0.1')}---\nkind: {\n`);
    // The cause comes before what follows from it.
    const [cause = '', consequence = ''] = await findings(['--manifests', bad]);
    assert.match(
      cause,
      /^manifests fail: A manifest file cannot be used; nothing of it is served: .* \(\S+\/bad\.yaml:1\d\) → /,
    );
    assert.match(consequence, /^manifests fail: nothing to serve: 0 Services/);
    assert.match(
      (await findings(['--manifests', '/nowhere']))[0]!,
      /^manifests fail: there is no file or directory "\/nowhere" to read manifests from/,
    );
  });

  test('fails when manifests have no Service to serve, and says why', async () => {
    const advice = 'write a Service with a port over TCP or UDP, and a clusterIP or type: NodePort';
    const empty = file('empty.yaml', '# nothing yet\n');
    assert.deepEqual(await findings(['--manifests', empty]), [
      `manifests fail: nothing to serve: 0 Services with 0 ports in ${empty} → ${advice}`,
    ]);
    const sctp = file('sctp.yaml', SERVICE.replace('port: 80', 'port: 80, protocol: SCTP'));
    assert.deepEqual(await findings(['--manifests', sctp]), [
      `manifests warn: shop/web is not served: SCTP is not supported in user space (${sctp}:1)`,
      `manifests fail: nothing to serve: 1 Service with 1 port in ${sctp} → ${advice}`,
    ]);
    const typo = file(
      'typo.yaml',
      SERVICE.replace('kind: Service', 'kind: Servce').replace('80', '80, nodePort: 30080'),
    );
    assert.deepEqual((await findings(['--manifests', typo])).slice(0, -1), [
      `manifests fail: Service "shop/web" is not valid; it is left out: kind is "Servce" (${typo}:2) → did you mean Service?`,
      'manifests warn: A part of Service "shop/web" has no effect: spec.ports[0].nodePort is 30080, but a Service of ' +
        `type ClusterIP has none (${typo}:6) → write type: NodePort, or remove it`,
    ]);
  });

  test('finds what valid manifests leave out, and names each place', async () => {
    const other = (text: string, name: string) => text.replaceAll('name: web', `name: ${name}`);
    const path = file(
      'odd.yaml',
      [
        SERVICE,
        ENDPOINTS.replace('---\n', ''),
        other(SERVICE, 'twice'),
        other(ENDPOINTS, 'twice').replace('---\n', ''),
        other(SERVICE, 'alone').replace('0.100', '0.101'),
        other(SERVICE, 'six').replace('0.100', '0.102'),
        other(ENDPOINTS, 'six').replace('---\n', '').replace('10.244.1.7', 'fd00::7'),
        other(SERVICE, 'target').replace('0.100', '0.103').replace('port: 80', 'port: 80, targetPort: 9090'),
        other(ENDPOINTS, 'target').replace('---\n', ''),
        'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n',
      ].join('---\n'),
    );
    const lines = await findings(['--manifests', path]);
    const shown = lines.map((line) => line.replaceAll(path, 'odd.yaml'));
    assert.deepEqual(shown, [
      'manifests ok: 5 Services with 5 ports in odd.yaml',
      'manifests warn: A manifest file has objects of kinds that the proxy does not use (kinds: Deployment) (odd.yaml) ' +
        '→ nothing, if they are for other programs',
      'manifests warn: Endpoints "shop/target" does not match a Service: its port without a name (TCP) is 8080, and ' +
        'targetPort of Service "shop/target" is 9090 (odd.yaml:51) → clients get 8080, so write the same number in both',
      'manifests warn: shop/web goes without 10.96.0.100:80/TCP: shop/twice (odd.yaml:13) has it (odd.yaml:1) → give one ' +
        'of the two another address or NodePort',
      'manifests warn: shop/alone refuses its clients: no EndpointSlice or Endpoints object in namespace shop is for ' +
        'alone (odd.yaml:25) → write Endpoints of the same name and namespace',
      'manifests warn: shop/six refuses its clients: none of its endpoints has an IPv4 address (odd.yaml:32) → add ' +
        'endpoints of that family, or give the Service an address of the family of its endpoints',
    ]);
  });

  test('says where clients of a Service without endpoints wait, by the flag or by the Service', async () => {
    const waits = (ms: string) => `manifests warn: shop/web has its clients wait up to ${ms}: no EndpointSlice or `;
    const metadata = 'namespace: shop, annotations: {kube-userspace-proxy/wait-for-endpoints: 5s}';
    const asking = SERVICE.replace('namespace: shop', metadata);
    for (const [text, expected] of [
      [SERVICE, waits('30s')],
      [asking, waits('5s')],
    ] as const) {
      const [, line = ''] = await findings(['--manifests', file('waits.yaml', text), '--wait-for-endpoints', '30s']);
      assert.ok(line.startsWith(expected), line);
    }
  });

  test('names what both families of a Service lack once', async () => {
    const dual = 'clusterIPs: [10.96.0.100, "fd00:96::100"]\n  ipFamilies: [IPv4, IPv6]\n  clusterIP: 10.96.0.100';
    const path = file('dual.yaml', SERVICE.replace('clusterIP: 10.96.0.100', dual));
    const lines = await findings(['--manifests', path], { families: ['IPv4', 'IPv6'] });
    assert.equal(lines.filter((line) => line.includes('shop/web refuses its clients')).length, 1, lines.join('\n'));
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
    } = {}) => {
      const cluster = { server, 'certificate-authority-data': Buffer.from(ca).toString('base64') };
      const config = {
        clusters: [{ name: 'c', cluster }],
        users: [{ name: 'u', user }],
        contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
        'current-context': 'x',
      };
      return ['--kubeconfig', file('kubeconfig', JSON.stringify(config), mode)];
    };

    test('goes all the way', async () => {
      api.misbehave('/version', (_request, response) => sendJson(response, 200, { gitVersion: 'v1.33.1' }));
      const [version] = await findings(kubeconfig({ user: { token: 'secret-token' } }));
      assert.equal(version, `API server ok: 127.0.0.1:${api.port} answers, Kubernetes v1.33.1`);
      assert.ok(api.requests.every(({ headers }) => headers.authorization === 'Bearer secret-token'));
    });

    test('asks each of several servers: one that works is enough, and one of another cluster is named', async (context) => {
      const start = async (cluster: string) => {
        const server = await FakeApiServer.start({ tls: authority.issue(), cluster });
        context.after(() => server.stop());
        return server;
      };
      const [ended, foreign] = [await start('cluster-1'), await start('cluster-2')];
      await ended.stop();
      const lines = await findings([
        ...kubeconfig(),
        '--api-servers',
        [ended, api, foreign].map(({ url }) => url).join(),
      ]);
      const [first, second, third] = lines.filter((line) => line.startsWith('API server '));
      assert.match(
        String(first),
        /^API server warn: the API server 127.0.0.1:\d+ cannot be used: connect ECONNREFUSED →/,
      );
      assert.equal(
        second,
        `API server ok: 127.0.0.1:${api.port} answers with HTTP 404: the server could not find the requested resource`,
      );
      assert.match(String(third), /^API server warn: .* is of another cluster than 127.0.0.1:\d+, and is left out →/);
      const none = await findings([...kubeconfig({ server: ended.url }), '--api-servers', 'https://127.0.0.1:1']);
      assert.equal(none.filter((line) => line.startsWith('API server fail: ')).length, 2, none.join('\n'));
      api.misbehave('/version', (_, response) => sendPage(response, 404, '404 page not found'));
      const other = (await findings(kubeconfig())).find((line) => line.startsWith('API server '));
      assert.match(String(other), /^API server fail: .* cannot be used: HTTP 404 → check that its port, http:/);
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
      api.requests.length = 0;
      // Other reviews than these have no answer in this server, which is a warning.
      const { out } = await run(...kubeconfig(), ...MODEST);
      assert.match(out, /^ok {4}Services {7}1 Service with 1 port$/m);
      const line = `warn  NodePorts      node (${process.pid}) listens at ${port}/TCP, the NodePort of shop/web: `;
      assert.ok(out.includes(line), out);
      const writes = api.requests.filter(({ method }) => method !== 'GET').map(({ url }) => url.pathname);
      assert.deepEqual([...new Set(writes)], ['/apis/authorization.k8s.io/v1/selfsubjectaccessreviews']);
    });

    test('asks for no Services that it may not list', async (context) => {
      const strict = await FakeApiServer.start({ tls: authority.issue() });
      context.after(() => strict.stop());
      const reviews = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
      for (let count = 0; count < 20; count++) {
        strict.misbehave(reviews, (_request, response) => sendJson(response, 201, { status: { allowed: false } }));
      }
      const lines = await findings(kubeconfig({ server: strict.url }));
      assert.match(lines.join('\n'), /^permissions fail: .* may not list services/m);
      assert.deepEqual(
        lines.filter((line) => /^(Services|external IPs) /.test(line)),
        [],
      );
    });

    test('ends at credentials that are refused', async () => {
      api.misbehave('/version', (_request, response) => sendStatus(response, 401, 'Unauthorized'));
      const [line, ...others] = await findings(kubeconfig({ user: { token: 'old' } }));
      assert.match(line!, /^API server fail: .* does not accept the credentials \(HTTP 401\) → .*replace them/);
      assert.deepEqual(others, []);
    });

    test('goes on where the server answers with an error', async () => {
      api.misbehave('/version', (_request, response) => sendStatus(response, 503, 'etcd is away'));
      const [line, ...others] = await findings(kubeconfig());
      assert.match(line!, /^API server warn: .* answers with HTTP 503: etcd is away → .* is healthy/);
      assert.ok(others.length > 0);
    });

    test('says how a server cannot be reached, and what to look at', async (context) => {
      const strict = await FakeApiServer.start({ tls: { ...authority.issue(), ca: authority.certificate.cert } });
      context.after(() => strict.stop());
      const plain = await FakeApiServer.start();
      context.after(() => plain.stop());
      const other = new CertificateAuthority('other').certificate.cert;
      const { cert, key } = authority.issue({ names: 'DNS:elsewhere' });
      const misnamed = await FakeApiServer.start({ tls: { cert, key } });
      context.after(() => misnamed.stop());
      for (const [what, options, advice] of [
        ['another authority', { ca: other }, /check the certificates/],
        ['another name', { server: misnamed.url }, /check the certificates, tls-server-name/],
        ['no client certificate', { server: strict.url }, /check the certificates/],
        ['nobody listens', { server: 'https://127.0.0.1:1' }, /start the API server, or correct its address/],
        ['an unknown name', { server: 'https://no-such-host.invalid' }, /check its name and \/etc\/resolv\.conf/],
        ['no TLS', { server: plain.url.replace('http:', 'https:') }, /check that its port/],
      ] as const) {
        const [line, ...others] = await findings(kubeconfig(options));
        const [, host = ''] = /^API server fail: the API server (\S+) cannot be used: /.exec(line ?? '') ?? [];
        assert.match(host, /:\d+$|\.invalid$/, what);
        if (what === 'nobody listens') assert.equal(line?.split(host).length, 2, `the address once: ${line}`);
        assert.match(line?.split(' → ')[1] ?? '', advice, `${what}: ${line}`);
        assert.deepEqual(others, []);
      }
    });

    test('a server that does not answer is a warning where a start serves the state on disk', async () => {
      const dead = kubeconfig({ server: 'https://127.0.0.1:1' });
      const state = await stateOf(join(directory, 'of-server'), { source: 'kubernetes' }, []);
      const [found, server, ...others] = await findings([...dead, ...state]);
      assert.match(found!, /^state ok: .* has the state of 2026-11-20T08:00:00/);
      assert.match(
        server!,
        /^API server warn: .*REFUSED; a start serves the state of 2026-11-20T08:00:00.* → start the/,
      );
      assert.deepEqual(others, []);
      const [old, failed] = await findings([...dead, ...state, '--state-max-age=1h']);
      assert.match(old!, /^state warn: .*longer ago than --state-max-age \(\S+\) → /);
      assert.match(failed!, /^API server fail: /);
    });

    test('gives a silent server five seconds', async () => {
      const clock = new ManualClock();
      const waiting = new Promise<void>((resolve) => api.misbehave('/version', () => resolve()));
      const lines = findings(kubeconfig(), { clock });
      await waiting;
      clock.advance(REQUEST_MS);
      assert.match((await lines)[0]!, /^API server fail: .*: no answer within 5 s → check its address, routes/);
    });

    test('reports a kubeconfig that everybody may read, or nobody, and goes on with the machine', async () => {
      const open = await findings(kubeconfig({ user: { token: 't' }, mode: 0o644 }));
      assert.match(open.join('\n'), /^API server warn: The kubeconfig holds secrets and can be read by other users/m);
      const { out } = await run('--kubeconfig', '/nowhere', ...MODEST);
      assert.match(
        out,
        /^fail {2}API server {5}the kubeconfig \/nowhere cannot be read.* → correct \/nowhere, or start/m,
      );
      assert.match(out, /^ok {4}engine /m);
    });
  });
});
