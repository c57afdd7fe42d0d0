import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';
import {
  type ApiAnswer,
  type ApiConnectionFacts,
  type ApiSteps,
  checkApiConnection,
} from '../../../src/operate/check/api-connection.ts';
import { checkAuthority, checkClientCertificate, checkSecretFiles } from '../../../src/operate/check/credentials.ts';
import { checkPermissions } from '../../../src/operate/check/permissions.ts';
import { StepError } from '../../../src/operate/check/probes/connection.ts';
import { CertificateAuthority } from '../../support/certificates.ts';
import { of, told } from './levels.ts';

const GOOD: ApiSteps = {
  resolve: async () => ['192.0.2.1'],
  tcp: async () => {},
  tls: async () => ({ problem: undefined, names: 'DNS:api', validTo: 'Nov 20 13:00:00 2027 GMT' }),
  ask: async () => ({ status: 200, date: 'now', body: { gitVersion: 'v1.33.1' } }),
};

async function connect(steps: Partial<ApiSteps>, facts: Partial<ApiConnectionFacts> = {}) {
  const { findings, isUsable } = await checkApiConnection({
    server: new URL('https://api.test:6443'),
    origin: '/etc/kubeconfig',
    isProxied: false,
    skipVerify: false,
    clockSkewMs: () => 0,
    ...facts,
    steps: { ...GOOD, ...steps },
  });
  assert.equal(isUsable, of('fail', findings).length === 0);
  return findings;
}

const failing =
  (code: string, message = code) =>
  () =>
    Promise.reject(new StepError(code, message));
const certificate = (problem: string) => async () => ({
  problem,
  names: 'DNS:other.test',
  validTo: 'Nov 20 13:00:00 2020 GMT',
});
const answering = (answer: Partial<ApiAnswer>) => async () => ({
  status: 200,
  date: undefined,
  body: undefined,
  ...answer,
});

describe('the way to the API server', () => {
  test('that is free says what is there', async () => {
    assert.deepEqual(told(await connect({})), [
      'ok: api.test:6443 answers over TLS, Kubernetes v1.33.1',
      'ok: the clocks of both differ by 0 s',
    ]);
  });

  const FAILURES: readonly (readonly [what: string, steps: Partial<ApiSteps>, told: RegExp])[] = [
    [
      'a name that nobody knows',
      { resolve: failing('ENOTFOUND') },
      /^the name of the API server, api\.test, is not known → .*resolv\.conf/,
    ],
    ['a name server that is away', { resolve: failing('EAI_AGAIN') }, /cannot be looked up: EAI_AGAIN/],
    [
      'a closed port',
      { tcp: failing('ECONNREFUSED') },
      /^nothing listens at api\.test:6443 .* → start the API server, or mend .*\/etc\/kubeconfig/,
    ],
    [
      'silence',
      { tcp: failing('ETIMEDOUT') },
      /^api\.test:6443 does not answer → .*a ClusterIP works only once a proxy runs/,
    ],
    ['no route', { tcp: failing('EHOSTUNREACH') }, /^api\.test:6443 cannot be reached: EHOSTUNREACH/],
    ['a server without TLS', { tls: failing('ERR_SSL_WRONG_VERSION_NUMBER') }, /does not speak TLS → .*http:\/\//],
    ['a broken handshake', { tls: failing('ECONNRESET') }, /ended the connection within the TLS handshake/],
    [
      'another failure of TLS',
      { tls: failing('ERR_SSL_X', 'alert 40') },
      /^the TLS handshake with api\.test:6443 failed: alert 40/,
    ],
    [
      'a certificate that has expired',
      { tls: certificate('CERT_HAS_EXPIRED') },
      /has expired on Nov 20 13:00:00 2020 GMT/,
    ],
    [
      'one that is not valid yet',
      { tls: certificate('CERT_NOT_YET_VALID') },
      /is not valid yet → set this machine's clock/,
    ],
    [
      'one for another name',
      { tls: certificate('ERR_TLS_CERT_ALTNAME_INVALID: Hostname/IP does not match') },
      /is for other names: DNS:other\.test → .*tls-server-name/,
    ],
    [
      'an unknown authority',
      { tls: certificate('UNABLE_TO_VERIFY_LEAF_SIGNATURE') },
      /not signed by an authority .* → .*certificate-authority/,
    ],
    ['any other fault of it', { tls: certificate('CERT_REVOKED') }, /cannot be trusted: CERT_REVOKED/],
    ['no answer', { ask: failing('', 'no answer within 5 s') }, /^api\.test:6443 gave no answer: no answer within 5 s/],
    [
      'credentials that do not count',
      { ask: answering({ status: 401 }) },
      /does not accept the credentials \(HTTP 401\) → .*\/etc\/kubeconfig/,
    ],
  ];
  for (const [what, steps, expected] of FAILURES) {
    test(`ends at ${what}, in a sentence of its own`, async () => {
      const findings = await connect(steps);
      assert.equal(findings.length, 1);
      assert.match(of('fail', findings)[0]!, expected);
    });
  }

  test('tells a server that speaks TLS from an address without it', async () => {
    const server = new URL('http://api.test:6443');
    const bad = await connect({ ask: answering({ status: 400 }) }, { server });
    assert.match(of('fail', bad)[0]!, /^api\.test:6443 does not take requests without TLS → .*https:\/\//);
    const silent = await connect({ ask: failing('', 'socket hang up') }, { server });
    assert.match(
      of('fail', silent)[0]!,
      /gave no answer: socket hang up → check the port, whether it wants https:\/\/,/,
    );
    assert.deepEqual(of('fail', await connect({ ask: answering({ status: 400 }) })), []);
  });

  test('to a server that is not well is a warning', async () => {
    const findings = await connect({ ask: answering({ status: 500, body: { message: 'etcd is away' } }) });
    assert.deepEqual(of('warn', findings), [
      'api.test:6443 answers over TLS, HTTP 500: etcd is away → see that it is well',
    ]);
  });

  test('is not verified where the kubeconfig says so, and has no TLS with http', async () => {
    const unknown = { tls: certificate('DEPTH_ZERO_SELF_SIGNED_CERT') };
    assert.deepEqual(of('fail', await connect(unknown, { skipVerify: true })), []);
    const plain = await connect({ tls: failing('EPROTO') }, { server: new URL('http://api.test:8080') });
    assert.equal(told(plain)[0], 'ok: api.test:8080 answers, Kubernetes v1.33.1');
  });

  test('by way of an HTTP proxy is looked at as a whole', async () => {
    const never = failing('ENOTFOUND');
    assert.deepEqual(of('fail', await connect({ resolve: never, tcp: never, tls: never }, { isProxied: true })), []);
    const findings = await connect({ ask: failing('', 'proxy says no') }, { isProxied: true });
    assert.match(of('fail', findings)[0]!, /there is an HTTP proxy on the way.*: proxy says no → check HTTPS_PROXY/);
  });

  test('shows a clock that is off', async () => {
    assert.match(
      of('warn', await connect({}, { clockSkewMs: () => -90_000 }))[0]!,
      /is 90 s behind that of the API server/,
    );
    assert.match(of('warn', await connect({}, { clockSkewMs: () => 30_000 }))[0]!, /is 30 s ahead of/);
    assert.equal(told(await connect({}, { clockSkewMs: () => undefined })).length, 1);
  });

  test('of an IPv6 server goes to its address without brackets', async () => {
    const hosts: string[] = [];
    await connect(
      {
        tcp: async ({ host, port }) => {
          hosts.push(`${host} ${port}`);
        },
      },
      { server: new URL('https://[2001:db8::1]') },
    );
    assert.deepEqual(hosts, ['2001:db8::1 443']);
  });
});

describe('permissions', () => {
  const SERVICES = '/api/v1/services';
  const SLICES = '/apis/discovery.k8s.io/v1/endpointslices';
  const NODE = '/api/v1/nodes/node-1';
  const asked: string[] = [];
  const check = (statuses: Readonly<Record<string, number>>, denied: readonly string[] = []) => {
    asked.length = 0;
    return checkPermissions({
      nodeName: 'node-1',
      ask: async (path, body) => {
        asked.push(path);
        if (body === undefined) {
          const status = statuses[path.replace('?limit=1', '')] ?? 200;
          return { status, date: undefined, body: status === 403 ? { message: 'no way' } : {} };
        }
        const { verb, resource } = (body as { spec: { resourceAttributes: { verb: string; resource: string } } }).spec
          .resourceAttributes;
        const status = statuses['reviews'] ?? 201;
        return { status, date: undefined, body: { status: { allowed: !denied.includes(`${verb} ${resource}`) } } };
      },
    });
  };

  test('that a server answers with what is no JSON are not known', async () => {
    for (const nothing of [undefined, null, [], 1, { status: null }]) {
      const ask: ApiSteps['ask'] = async (path, body) =>
        body === undefined ? GOOD.ask(path) : { status: 200, date: undefined, body: nothing };
      const [finding, ...more] = told(await checkPermissions({ nodeName: 'node-1', ask }));
      assert.match(finding ?? '', /^warn: the server does not say what these credentials may do .*HTTP 200/);
      assert.deepEqual(more, []);
    }
  });

  test('that suffice are one line', async () => {
    assert.deepEqual(told(await check({})), [
      'ok: may list and watch Services and EndpointSlices, follow its Node node-1 and write events',
    ]);
    assert.ok(asked.includes(`${SERVICES}?limit=1`), 'asks for one object only');
  });

  test('without which nothing is served are failures, with the role that has them', async () => {
    const findings = await check({ [SERVICES]: 403 }, ['watch endpointslices']);
    assert.deepEqual(of('fail', findings).length, 2);
    assert.match(
      of('fail', findings)[0]!,
      /^Service objects cannot be listed: HTTP 403, no way → bind the ClusterRole system:node-proxier/,
    );
    assert.match(of('fail', findings)[1]!, /may not watch endpointslices\.discovery\.k8s\.io/);
  });

  test('that are good to have are warnings', async () => {
    const findings = await check({ [NODE]: 403 }, ['create events', 'watch nodes']);
    assert.deepEqual(of('fail', findings), []);
    assert.equal(of('warn', findings).length, 3);
  });

  test('a Node of another name is told', async () => {
    assert.match(of('warn', await check({ [NODE]: 404 }))[0]!, /^the cluster has no Node node-1.*--hostname-override/);
  });

  test('an old server has Endpoints', async () => {
    const findings = await check({ [SLICES]: 404 });
    assert.match(told(findings)[0]!, /^ok: may list and watch Services and Endpoints,/);
    assert.ok(asked.includes('/api/v1/endpoints?limit=1'));
    assert.match(of('fail', await check({ [SLICES]: 404 }, ['watch endpoints']))[0]!, /may not watch endpoints,/);
  });

  test('of a server that is not well are no matter of roles', async () => {
    const statuses = { [SERVICES]: 500, [SLICES]: 500, reviews: 500, [NODE]: 503 };
    const findings = await check(statuses);
    assert.equal(findings.length, 4);
    for (const { advice } of findings) assert.equal(advice, 'see that the API server is well');
  });

  test('are asked for no longer once there is no answer', async () => {
    for (const silent of [SERVICES, SLICES, '/apis/authorization.k8s.io', NODE]) {
      const asked: string[] = [];
      const ask: ApiSteps['ask'] = async (path, body) => {
        asked.push(path);
        if (path.startsWith(silent)) throw new Error('no answer within 5 s');
        const status = body === undefined ? 403 : 201;
        return { status, date: undefined, body: { status: { allowed: true } } };
      };
      const findings = of('fail', await checkPermissions({ nodeName: 'node-1', ask }));
      assert.match(
        findings.at(-1)!,
        /^the server was asked for permissions: no answer within 5 s → see that the API server/,
      );
      assert.equal(asked.filter((path) => path.startsWith(silent)).length, 1, silent);
      assert.ok(asked.at(-1)?.startsWith(silent));
      assert.equal(
        findings.length,
        1 + asked.filter((path) => /limit=1$/.test(path) && !path.startsWith(silent)).length,
      );
    }
  });

  test('a server that gives no reviews is told once', async () => {
    const findings = await check({ reviews: 403 });
    assert.match(of('warn', findings)[0]!, /does not say what these credentials may do/);
    assert.equal(findings.length, 1);
  });
});

describe('credentials', () => {
  test('files that everybody may read are told', () => {
    const findings = checkSecretFiles([
      { path: '/a', mode: 0o100600 },
      { path: '/b', mode: 0o100644 },
      { path: '/c', mode: undefined },
    ]);
    assert.deepEqual(told(findings), [
      'warn: /b holds a secret and can be read by every user of this machine',
      'fail: /c cannot be looked at',
    ]);
  });

  test('an authority is one in PEM', () => {
    assert.match(of('fail', checkAuthority({ ca: 'x' }))[0]!, /is no certificate in PEM → mend certificate-authority/);
    assert.deepEqual(checkAuthority({ ca: new CertificateAuthority('test').certificate.cert }), []);
    assert.deepEqual(checkAuthority({}), []);
  });

  describe('client certificates', () => {
    const authority = new CertificateAuthority('test');
    const DAY = 24 * 3_600_000;

    test('count the days that they have left', () => {
      const { cert, key } = authority.issue();
      const now = Date.now();
      assert.match(told(checkClientCertificate({ cert, key }, now))[0]!, /^warn: the client certificate expires on /);
      assert.match(told(checkClientCertificate({ cert, key }, now - 6 * DAY))[0]!, /^fail: .* valid only from/);
      assert.match(
        told(checkClientCertificate({ cert, key }, now + 3 * DAY))[0]!,
        /^fail: the client certificate has expired on /,
      );
    });

    test('that last longer than a week are fine', () => {
      const argv =
        'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout /dev/null -subj /CN=x -days 8';
      const cert = execFileSync('openssl', argv.split(' '), { encoding: 'utf8', stdio: 'pipe' });
      assert.match(told(checkClientCertificate({ cert, key: 'k' }, Date.now() + 1_000))[0]!, /^ok: .* is valid until /);
    });

    test('need a key, and to be one', () => {
      const { cert } = authority.issue();
      assert.match(
        told(checkClientCertificate({ cert }, Date.now()))[0]!,
        /^fail: there is a client certificate without a key/,
      );
      assert.match(
        told(checkClientCertificate({ cert: 'x', key: 'y' }, Date.now()))[0]!,
        /^fail: .* no certificate in PEM/,
      );
      assert.deepEqual(checkClientCertificate({}, Date.now()), []);
    });
  });
});
