import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, type TestContext, test } from 'node:test';
import { PATIENCE_MS, waitFor } from '../../netns/wait.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { connectSocket, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { ChildProgram } from './child-program.ts';

/*
 * Calls of a worker that fail, come too late for a signal, or do a part of what was asked. strace sees the worker's
 * thread alone. A call that it lets fail does not reach the kernel.
 */

const missing = spawnSync('strace', ['-V']).error === undefined ? false : 'strace is not installed';
const options = { skip: missing, timeout: 600_000 };

const BULK_BYTES = 8 << 20;
const CONNECTIONS = 40;
const CLIENTS = 8;
const QUESTIONS = 20;

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

/** Resolves to a reader of what strace has seen of the worker of this process. */
async function trace(t: TestContext, pid: number, expressions: readonly string[]): Promise<() => string> {
  const folder = mkdtempSync(join(tmpdir(), 'faults-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'trace');
  const of = (thread: string, what: string) => readFileSync(`/proc/${pid}/task/${thread}/${what}`, 'utf8');
  const thread = readdirSync(`/proc/${pid}/task`).find((each) => of(each, 'comm').startsWith('data-plane')) as string;
  const args = ['-qq', '-o', file, ...expressions.flatMap((each) => ['-e', each]), '-p', thread];
  const strace = spawn('strace', args, { stdio: ['ignore', 'inherit', 'inherit'] });
  t.after(() => strace.kill());
  await waitFor('strace to attach', () => /^TracerPid:\t[1-9]/m.test(of(thread, 'status')));
  return () => readFileSync(file, 'latin1');
}

/** A stream in bulk, there and back, among many short connections: all bytes must be the same. */
async function carryTcp(t: TestContext, expressions: readonly string[], bulkBytes = BULK_BYTES): Promise<string> {
  const { endpoint } = await TcpBackend.echo(t);
  const plane = await ChildProgram.start<object>(t, 'small-plane.ts', { args: [endpoint.port] });
  const traced = await trace(t, plane.pid, expressions);
  const bulk = async () => {
    const socket = await connectSocket(plane.port);
    const received = new PatternReceiver(socket);
    await new PatternSender(socket).send(bulkBytes);
    socket.end();
    await waitFor('the last byte', () => received.receivedBytes === bulkBytes, 300_000);
    assert.ok(received.isIntact, 'the bytes differ');
  };
  const short = async (bytes: number) => {
    const client = await connectTcp(plane.port);
    const sent = randomBytes(bytes);
    client.end(sent);
    assert.equal(await client.finished(), 'end');
    assert.ok(client.bytes.equals(sent), `of ${bytes} bytes ${client.receivedBytes} came, or others`);
  };
  await Promise.all([bulk(), ...Array.from({ length: CONNECTIONS }, (_, i) => short(i * 997))]);
  return traced();
}

/** Questions of several clients: each must have its own answer, once; or once for each time it was asked. */
async function carryUdp(t: TestContext, expressions: readonly string[], isLossy = false): Promise<string> {
  const { endpoint } = await UdpBackend.echo(t);
  const args = [endpoint.port, endpoint.address, '', 'UDP', PATIENCE_MS];
  const plane = await ChildProgram.start<object>(t, 'small-plane.ts', { args });
  const traced = await trace(t, plane.pid, expressions);
  const clients = await Promise.all(Array.from({ length: CLIENTS }, () => UdpClient.connect(t, plane.port)));
  await Promise.all(
    clients.map(async (client) => {
      const tokens = Array.from({ length: QUESTIONS }, () => randomBytes(16).toString('hex'));
      for (const token of tokens) {
        if (!isLossy) assert.equal(await client.ask(token), token);
        await waitFor('an answer', () => {
          if (client.texts.includes(token)) return true;
          client.send(token);
          return false;
        });
      }
      const answers = isLossy ? [...new Set(client.texts)] : client.texts;
      assert.deepEqual(answers, tokens);
    }),
  );
  return traced();
}

for (const [protocol, call, error, when] of [
  ['TCP', 'splice', 'EINVAL', '1+'],
  ['TCP', 'splice', 'EIO', '2+7'],
  ['TCP', 'splice', 'EINTR', '2+3'],
  ['TCP', 'recvfrom', 'EINTR', '2+3'],
  ['TCP', 'sendto', 'EINTR', '2+3'],
  ['TCP', 'epoll_wait', 'EINTR', '2+3'],
  ['TCP', 'accept4', 'EINTR', '2+3'],
  ['TCP', 'accept4', 'EAGAIN', '2+3'],
  ['TCP', 'accept4', 'ECONNABORTED', '2+3'],
  ['TCP', 'connect', 'EINTR', '2+3'],
  ['TCP', 'socket', 'ENOBUFS', '2+3'],
  ['TCP', 'setsockopt', 'ENOMEM', '1+'],
  ['TCP', 'pipe2', 'EMFILE', '1+'],
  ['TCP', 'fcntl', 'EPERM', '1+'],
  ['UDP', 'recvmmsg', 'EINTR', '2+3'],
  ['UDP', 'sendmmsg', 'EINTR', '2+3'],
  ['UDP', 'sendto', 'EINTR', '2+3'],
  ['UDP', 'epoll_wait', 'EINTR', '2+3'],
] as const) {
  const often = when === '1+' ? 'each' : 'some';
  test(`no byte is lost or doubled over ${protocol} when ${often} ${call} ends with ${error}`, options, async (t) => {
    const carry = protocol === 'TCP' ? carryTcp : carryUdp;
    assert.match(await carry(t, [`inject=${call}:error=${error}:when=${when}`]), /INJECTED/);
  });
}

// The kernel says ENOBUFS where its table of neighbours is full.
for (const [call, error] of [
  ['recvmmsg', 'EAGAIN'],
  ['sendmmsg', 'EAGAIN'],
  ['sendto', 'EAGAIN'],
  ['sendto', 'ENOBUFS'],
] as const) {
  test(`a datagram is lost alone when some ${call} ends with ${error}`, options, async (t) => {
    assert.match(await carryUdp(t, [`inject=${call}:error=${error}:when=2+3`], true), /INJECTED/);
  });
}

test(
  'no byte is lost or doubled over TCP when buffers are so small that calls move a part, or nothing',
  options,
  async (t) => {
    const file = '/proc/sys/net/ipv4/tcp_wmem';
    const usual = readFileSync(file, 'utf8');
    writeFileSync(file, '4096 4096 4096');
    t.after(() => writeFileSync(file, usual));
    const traced = await carryTcp(t, ['trace=sendto,splice']);
    const calls = traced.matchAll(/^\w+\(.*, (\d+), \S+\) += (\d+)$|^sendto\(.*, (\d+), \S+, NULL, 0\) += (\d+)$/gm);
    const partial = [...calls].filter(([, a, b, c = a, d = b]) => Number(d) < Number(c));
    assert.ok(partial.length > 0, 'some calls move a part');
    assert.match(traced, /EAGAIN/);
  },
);
