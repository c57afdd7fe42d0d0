import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, type TestContext, test } from 'node:test';
import { calls as TABLE } from '../../../src/sys/calls.ts';
import { MSG_MORE } from '../../../src/sys/socket.ts';
import { buildNetwork, NODE_ADDRESSES } from '../../compliance/data-plane/network.ts';
import { waitFor } from '../../netns/wait.ts';
import { descriptorOf, sendTo } from '../../support/raw-tcp.ts';
import { ChildProgram } from './child-program.ts';

/*
 * What a worker asks of the kernel, counted by strace: all its calls but the waits for events, which serve many
 * connections at a time. Only warm cases: what earlier connections have left is there.
 */

const missing = spawnSync('strace', ['-V']).error === undefined ? false : 'strace is not installed';
const options = { skip: missing, timeout: 300_000 };

const [NODE, CLIENT] = NODE_ADDRESSES;
/** Below the ports that the node gives out, as those of most endpoints are. */
const BACKEND_PORT = 8080;
const MARK = 8192;
/** The first ones make what all share, and the sockets that later ones use. */
const COLD = 3;
const COUNTED = 9;

/** Ends of calls that another thread interrupted, waits, and what V8 does for itself. */
const NOT_COUNTED = /^(<\.\.\.|epoll_wait|epoll_pwait|futex|getpid|madvise|mmap|mprotect|munmap)/;

/** The kernel's own names, where libc has others. */
const LIBC_NAMES: Readonly<Record<string, string>> = { recvfrom: 'recv', sendto: 'send' };

let lastPort = 20_000;

before(() => {
  buildNetwork();
  // The kernel translates addresses where there is a rule of the table nat.
  const rule = ['POSTROUTING', '-m', 'mark', '--mark', String(MARK), '-j', 'MASQUERADE'];
  execFileSync('iptables', ['-w', '-t', 'nat', '-A', ...rule]);
});

interface Plane {
  readonly port: number;
  /** Resolves when nothing is open any more. */
  over(): Promise<unknown>;
  /** What its worker called so far, with arguments and results. */
  calls(): readonly string[];
}

async function tracedPlane(t: TestContext, ...mode: readonly string[]): Promise<Plane> {
  const folder = mkdtempSync(join(tmpdir(), 'system-calls-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'trace');
  const plane = await ChildProgram.start<{ counters: { active: number } }>(t, 'small-plane.ts', {
    args: [BACKEND_PORT, NODE, ...mode],
    wrapper: ['strace', '-f', '-qq', '-o', file],
  });
  const calls = () => {
    const lines = readFileSync(file, 'latin1').split('\n');
    // Node's own loop takes more events at a time.
    const worker = lines.find((line) => /epoll_wait.*, 128, /.test(line))?.split(' ')[0];
    return lines
      .filter((line) => line.startsWith(`${worker} `))
      .map((line) => line.replace(/^\d+ +/, ''))
      .filter((call) => !NOT_COUNTED.test(call));
  };
  const over = () => waitFor('the end', async () => (await plane.state()).counters.active === 0);
  return { port: plane.port, over, calls };
}

const nameOf = (call: string) => call.slice(0, call.indexOf('('));

/** The names of the calls from each one of this name to the next, as far as it concerns the first one's descriptor. */
function periodsOf(name: string, calls: readonly string[]): readonly (readonly string[])[] {
  const beginning = calls.find((call) => call.startsWith(`${name}(`))?.match(/^\w+\(\d+,/)?.[0] ?? '?';
  const found: string[][] = [];
  for (const call of calls) {
    if (call.startsWith(beginning)) found.push([]);
    found.at(-1)?.push(nameOf(call));
  }
  return found;
}

/**
 * Half of them make at most so many: now and then Node's own loop or the garbage collector adds some. All of the
 * shortest are in the table of functions of libc that docs/security.md shows, unless Node opens a file of /proc in it.
 */
function assertBudget(each: readonly (readonly string[])[], budget: number): void {
  const counted = each.slice(COLD, COLD + COUNTED);
  assert.equal(counted.length, COUNTED);
  const byLength = counted.toSorted((a, b) => a.length - b.length);
  const [shortest = [], typical = []] = [byLength[0], byLength[COUNTED >> 1]];
  assert.ok(typical.length <= budget, `${typical.length} calls instead of ${budget}: ${typical.join(', ')}`);
  assert.deepEqual(
    shortest.filter((name) => name !== 'openat' && !Object.hasOwn(TABLE, LIBC_NAMES[name] ?? name)),
    [],
  );
}

/** Answers a request and ends the connection; `forever`: goes on with the next. Resolves to whom it has seen. */
async function tcpBackend(t: TestContext, forever = false): Promise<ReadonlySet<string | undefined>> {
  const seen = new Set<string | undefined>();
  const server = createServer((socket) => {
    seen.add(socket.remoteAddress);
    socket
      .on('error', () => {})
      .on('data', () => {
        if (forever) {
          socket.write('answer');
          return;
        }
        // In one packet with the end, which is read with the bytes then.
        sendTo(descriptorOf(socket), 'answer', MSG_MORE);
        socket.end();
      });
  });
  t.after(() => server.close());
  await once(server.listen({ host: NODE, port: BACKEND_PORT }), 'listening');
  return seen;
}

function connectTo(port: number) {
  // A port that is bound on this node, as a pod's is not, must not be one that the node gives out.
  return connect({ host: NODE, port, localAddress: CLIENT, localPort: ++lastPort });
}

for (const { what, mode, budget } of [
  { what: 'a short connection', mode: [], budget: 14 },
  // Netfilter is asked and answers, and the local port is chosen.
  { what: 'a short connection whose endpoint sees the client', mode: ['kept'], budget: 17 },
]) {
  test(`${what} takes ${budget} system calls`, options, async (t) => {
    const seen = await tcpBackend(t);
    const plane = await tracedPlane(t, ...mode);
    for (let i = 0; i <= COLD + COUNTED; i++) {
      const socket = connectTo(plane.port);
      socket.write('request');
      await once(socket.resume(), 'close');
      await plane.over();
    }
    assertBudget(periodsOf('accept4', plane.calls()), budget);
    assert.deepEqual([...seen], [mode.length > 0 ? CLIENT : NODE]);
  });
}

test('a request on an open connection takes 4 system calls', options, async (t) => {
  await tcpBackend(t, true);
  const plane = await tracedPlane(t);
  const socket = connectTo(plane.port);
  t.after(() => socket.destroy());
  for (let i = 0; i <= COLD + COUNTED; i++) {
    socket.write('request');
    await once(socket, 'data');
  }
  assertBudget(periodsOf('recvfrom', plane.calls()), 4);
});

test(
  'a stream in bulk takes two system calls for a mebibyte, and hardly any that finds nothing',
  options,
  async (t) => {
    const server = createServer((socket) => socket.on('error', () => {}).resume());
    t.after(() => server.close());
    await once(server.listen({ host: NODE, port: BACKEND_PORT }), 'listening');
    const plane = await tracedPlane(t);
    const socket = connectTo(plane.port);
    const megabyte = Buffer.alloc(1 << 20);
    for (let i = 0; i < 256; i++) if (!socket.write(megabyte)) await once(socket, 'drain');
    socket.end();
    await once(socket.resume(), 'close');
    const splices = plane.calls().filter((call) => call.startsWith('splice('));
    const inVain = splices.filter((call) => call.includes('EAGAIN'));
    assert.ok(splices.length > 100, 'it is spliced');
    assert.ok(inVain.length < splices.length / 5, `${inVain.length} of ${splices.length} found nothing`);
  },
);

for (const { what, mode, budget } of [
  { what: 'a UDP flow of one question', mode: ['plain', 'UDP'], budget: 7 },
  // Five, and four that look up netfilter's timeout once a second.
  { what: "a client's next UDP flow of one question whose endpoint sees the client", mode: ['kept', 'UDP'], budget: 9 },
]) {
  test(`${what} takes ${budget} system calls`, options, async (t) => {
    const backend = createSocket('udp4').on('message', (_, from) => backend.send('answer', from.port, from.address));
    t.after(() => backend.close());
    backend.bind(BACKEND_PORT, NODE);
    await once(backend, 'listening');
    const plane = await tracedPlane(t, ...mode);
    for (let i = 0; i <= COLD + COUNTED; i++) {
      const client = createSocket('udp4');
      client.bind(++lastPort, CLIENT);
      client.send('question', plane.port, NODE);
      await once(client, 'message');
      client.close();
      await plane.over();
    }
    assertBudget(periodsOf('recvmmsg', plane.calls()), budget);
  });
}
