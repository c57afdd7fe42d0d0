import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { createServer, type Server } from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { ExecRequest, ExecResult } from '../../../src/kernel/iptables/exec.ts';
import { AgentPool } from '../../../src/kubernetes/agent-pool.ts';
import type { SocketPort } from '../../../src/operate/check/host-process.ts';
import { askerOf } from '../../../src/operate/check/probes/ask-api.ts';
import { tryToBind } from '../../../src/operate/check/probes/bind.ts';
import { resolveName, STEP_MS, tryTcp, tryTls } from '../../../src/operate/check/probes/connection.ts';
import { offerInEmptyNamespace } from '../../../src/operate/check/probes/empty-namespace.ts';
import { listenersOn, neighbours } from '../../../src/operate/check/probes/processes.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { FakeApiServer } from '../../fakes/fake-api-server.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { freePort } from '../../http/free-port.ts';
import { address } from '../../rules/fixtures.ts';
import { CertificateAuthority } from '../../support/certificates.ts';
import { settle } from '../../support/until.ts';

const LOOPBACK = address('127.0.0.1');

/** For steps that come to their end: however slow the machine is, they are not given up. */
const PATIENT = new ManualClock();

async function listen(): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => socket.on('error', () => {}));
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return { server, port };
}

describe('who listens', () => {
  test('is found through the socket of a port', async () => {
    const [{ server, port }, other] = [await listen(), await listen()];
    const socket = createSocket('udp6');
    await new Promise<void>((resolve) => socket.bind(0, resolve));
    const ports: readonly SocketPort[] = [`${port}/TCP`, `${socket.address().port}/UDP`];
    const found = listenersOn(new Set(ports));
    assert.deepEqual([...found.keys()].sort(), [...ports].sort());
    for (const holder of found.values()) assert.deepEqual(holder, { pid: process.pid, name: 'node' });
    await Promise.all([server, other.server].map((each) => new Promise((resolve) => each.close(resolve))));
    await new Promise<void>((resolve) => socket.close(resolve));
    assert.deepEqual([...listenersOn(new Set(ports))], []);
  });

  test('an address that is taken is told with its holder; one that is free stays so', async () => {
    const { server, port } = await listen();
    const tried = await tryToBind({ address: LOOPBACK, port });
    assert.equal(tried.outcome, 'taken');
    assert.equal(tried.outcome === 'taken' && tried.by?.pid, process.pid);
    await new Promise((resolve) => server.close(resolve));
    assert.deepEqual(await tryToBind({ address: LOOPBACK, port }), { outcome: 'free' });
    assert.deepEqual(await tryToBind({ address: LOOPBACK, port }), { outcome: 'free' });
    assert.deepEqual(await tryToBind({ address: address('192.0.2.99'), port }), {
      outcome: 'failed',
      err: 'EADDRNOTAVAIL',
    });
  });

  test('neighbours are others, not this process', () => {
    const pids = neighbours().map(({ pid }) => pid);
    assert.ok(pids.includes(process.ppid));
    assert.ok(!pids.includes(process.pid));
  });
});

describe('steps to a server', () => {
  const authority = new CertificateAuthority('test');
  let api: FakeApiServer;
  let named: FakeApiServer;

  before(async () => {
    api = await FakeApiServer.start({ tls: authority.issue() });
    named = await FakeApiServer.start({ tls: authority.issue({ names: 'DNS:localhost' }) });
  });

  after(() => Promise.all([api.stop(), named.stop()]));

  test('names and addresses', async () => {
    assert.deepEqual(await resolveName('2001:db8::1', PATIENT), ['2001:db8::1']);
    assert.ok((await resolveName('localhost', PATIENT)).length > 0);
    await assert.rejects(resolveName('no-such-host.invalid', systemClock), { name: 'StepError' });
  });

  test('connections', async () => {
    const clock = new ManualClock();
    await tryTcp({ host: '127.0.0.1', port: api.port }, clock);
    assert.equal(clock.pendingTimers, 0);
    const { server, port } = await listen();
    await new Promise((resolve) => server.close(resolve));
    await assert.rejects(tryTcp({ host: '127.0.0.1', port }, PATIENT), { code: 'ECONNREFUSED' });
  });

  test('certificates, trusted and not', async () => {
    const at = { host: '127.0.0.1', port: api.port };
    assert.equal((await tryTls({ ...at, ca: authority.certificate.cert }, PATIENT)).problem, undefined);
    assert.match(String((await tryTls(at, PATIENT)).problem), /UNABLE_TO_VERIFY_LEAF_SIGNATURE/);
    const byName = { host: 'localhost', port: named.port, ca: authority.certificate.cert };
    assert.equal((await tryTls(byName, PATIENT)).problem, undefined);
    const elsewhere = await tryTls({ ...at, ca: authority.certificate.cert, servername: 'api.test' }, PATIENT);
    assert.match(String(elsewhere.problem), /ERR_TLS_CERT_ALTNAME_INVALID/);
    assert.match(elsewhere.names, /IP Address:127\.0\.0\.1/);
  });

  test('a server without TLS', async () => {
    const plain = await FakeApiServer.start();
    await assert.rejects(tryTls({ host: '127.0.0.1', port: plain.port }, PATIENT), (error: NodeJS.ErrnoException) =>
      ['ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG', 'EPROTO'].includes(error.code ?? ''),
    );
    await plain.stop();
  });

  test('one that never answers is left after five seconds', async () => {
    const { server, port } = await listen();
    const clock = new ManualClock();
    const hangs = tryTls({ host: '127.0.0.1', port }, clock);
    await settle();
    clock.advance(STEP_MS);
    await assert.rejects(hangs, { code: 'ETIMEDOUT' });
    assert.equal(clock.pendingTimers, 0);
    server.close();
  });

  test('requests, with their status, date and JSON', async () => {
    const access = {
      server: new URL(api.url),
      tls: { ca: authority.certificate.cert, skipVerify: false },
      headers: { Authorization: 'Bearer t' },
    };
    const agent = new AgentPool({ env: {}, log: new RecordingLog() }).agentFor(access);
    const ask = askerOf({ access, agent, clock: PATIENT });
    const services = await ask('/api/v1/services?limit=1');
    assert.equal(services.status, 200);
    assert.equal((services.body as { kind: string }).kind, 'List');
    assert.ok(Math.abs(Date.parse(services.date ?? '') - Date.now()) < 60_000);
    assert.equal((await ask('/nowhere', { kind: 'X' })).status, 404);
    assert.equal(api.requests.at(-1)?.method, 'POST');
    assert.equal(api.requests.at(-1)?.headers.authorization, 'Bearer t');
    assert.equal((await ask('/livez')).body, undefined);
    agent.destroy();
  });

  test('a request that is never answered ends after five seconds', async () => {
    const clock = new ManualClock();
    const access = { server: new URL(api.url), tls: { skipVerify: true }, headers: {} };
    const agent = new AgentPool({ env: {}, log: new RecordingLog() }).agentFor(access);
    const waiting = new Promise<void>((resolve) => api.misbehave('/version', () => resolve()));
    const answer = askerOf({ access, agent, clock })('/version');
    await waiting;
    clock.advance(STEP_MS);
    await assert.rejects(answer, /no answer within 5 s/);
    agent.destroy();
  });
});

describe('offering rules in an empty namespace', () => {
  const exited = (code: number, stderr: string): ExecResult => ({ outcome: 'exited', code, stdout: '', stderr });
  const offer = async (answers: readonly ExecResult[]) => {
    const requests: ExecRequest[] = [];
    const exec = async (request: ExecRequest) => {
      requests.push(request);
      return answers[requests.length - 1] ?? exited(0, '');
    };
    const outcome = await offerInEmptyNamespace(exec, { flavour: 'nft', infix: '-nft' })('IPv6', '*nat\nCOMMIT\n');
    return { outcome, requests };
  };

  test('never runs iptables in the namespace of this machine', async () => {
    const denied = exited(1, 'unshare: unshare failed: Operation not permitted\n');
    const { outcome, requests } = await offer([denied, denied]);
    assert.deepEqual(outcome, { outcome: 'untold', err: 'unshare: unshare failed: Operation not permitted' });
    assert.equal(requests.length, 2);
    for (const { program, args } of requests) {
      assert.equal(program, 'unshare');
      assert.ok(args.includes('--net'));
    }
  });

  test('tells what the kernel says', async () => {
    const { outcome, requests } = await offer([]);
    assert.deepEqual(outcome, { outcome: 'accepted' });
    assert.deepEqual(requests[0]?.args.slice(0, 2), ['--net', 'ip6tables-nft-restore']);
    const refused = await offer([exited(2, 'ip6tables-nft-restore v1.8.9 (nf_tables): line 3: RULE_APPEND failed')]);
    assert.match(refused.outcome.outcome === 'refused' ? refused.outcome.err : '', /line 3: RULE_APPEND failed/);
    const locked = await offer([exited(4, 'Another app is currently holding the xtables lock.')]);
    assert.equal(locked.outcome.outcome, 'untold');
    assert.equal((await offer([{ outcome: 'missing' }, { outcome: 'missing' }])).outcome.outcome, 'untold');
  });
});
