import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Memory } from '../../../../src/sys/memory.ts';
import {
  AF_INET,
  connect,
  recv,
  SOCK_STREAM,
  shutdownWrite,
  socket,
  unacknowledgedBytes,
} from '../../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../../src/sys/socket-address.ts';
import { EAGAIN, must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { RawListener, RawPeer } from '../../../support/raw-tcp.ts';
import { RawUdpEndpoint, rawUdpClient } from '../../../support/raw-udp.ts';
import { engineRig } from './engine-rig.ts';

/*
 * Sockets towards endpoints are used again. All sockets of these tests are libc's, in one thread: what has been sent is
 * there in the engine's next turn.
 */

const LOOPBACK = '127.0.0.1';
const buffer = new Memory(64 << 10);

function read(fd: number): string | number {
  const received = recv(fd, buffer, 0, buffer.length);
  return received > 0 ? buffer.bytes.toString('latin1', 0, received) : received;
}

function connected(t: TestContext, port: number): RawPeer {
  const fd = must('socket', socket(AF_INET, SOCK_STREAM));
  connect(fd, encodeSocketAddress(LOOPBACK, port));
  return new RawPeer(t, fd);
}

function rig(t: TestContext, { limit = 1 << 20 } = {}) {
  const clock = new ManualClock();
  const { engine, owners, descriptors, listen, command, post } = engineRig(
    t,
    { udpIdleTimeoutMs: 300, udpFirstReplyTimeoutMs: 300 },
    { clock, limit },
  );
  const turns = (count = 4) => {
    for (let i = 0; i < count; i++) engine.turn(0);
  };
  const owned = () => Array.from(owners.keys()).filter((fd) => owners[fd] === 1);
  const atFirst = owned();
  /** Sockets that the worker has open beyond what it began with. */
  const open = () => owned().filter((fd) => !atFirst.includes(fd));
  const pass = (ms: number) => {
    clock.advance(ms);
    turns();
  };
  return { listen, command, post, turns, open, pass, descriptors };
}

type Rig = ReturnType<typeof rig>;

/** One request and its answer; both sides are open still. */
function exchange(t: TestContext, { turns }: Rig, listener: RawListener, port: number, what: string) {
  const client = connected(t, port);
  client.send(`request ${what}`);
  turns();
  const endpoint = listener.accept();
  assert.equal(read(endpoint.fd), `request ${what}`);
  endpoint.send(`answer ${what}`);
  turns();
  assert.equal(read(client.fd), `answer ${what}`);
  return { client, endpoint };
}

function endCleanly({ turns }: Rig, first: RawPeer, last: RawPeer): void {
  for (const peer of [first, last]) {
    shutdownWrite(peer.fd);
    turns();
  }
  for (const peer of [first, last]) assert.equal(read(peer.fd), 0, 'a clean end');
}

for (const first of ['client', 'endpoint'] as const) {
  test(`a socket takes one connection after another, each with its own bytes (the ${first} ends first)`, (t) => {
    const it = rig(t);
    const listener = new RawListener(t);
    const { localPort } = it.listen({ endpoints: [listener.endpoint] });
    let used: readonly number[] | undefined;
    for (let i = 0; i < 5; i++) {
      const { client, endpoint } = exchange(t, it, listener, localPort, `${i}`);
      endCleanly(it, ...(first === 'client' ? ([client, endpoint] as const) : ([endpoint, client] as const)));
      used ??= it.open();
      assert.equal(used.length, 1);
      assert.deepEqual(it.open(), used, 'no other socket was opened, and this one is there');
    }
  });
}

test('a socket whose connection was reset or cut is closed', (t) => {
  const it = rig(t);
  const listener = new RawListener(t);
  const { localPort } = it.listen({ endpoints: [listener.endpoint] });
  exchange(t, it, listener, localPort, 'of a client that resets').client.reset();
  it.turns();
  assert.deepEqual(it.open(), []);
  exchange(t, it, listener, localPort, 'of an endpoint that resets').endpoint.reset();
  it.turns();
  assert.deepEqual(it.open(), []);
});

test('a socket of a half-open connection is not free', (t) => {
  const it = rig(t);
  const listener = new RawListener(t);
  const { localPort } = it.listen({ endpoints: [listener.endpoint] });
  const { client, endpoint } = exchange(t, it, listener, localPort, 'one');
  shutdownWrite(client.fd);
  it.turns();
  const other = exchange(t, it, listener, localPort, 'two');
  endpoint.send('late answer');
  it.turns();
  assert.equal(read(client.fd), 'late answer');
  assert.equal(read(other.client.fd), -EAGAIN);
});

test('bytes and an end that an endpoint has not taken yet arrive, while others connect', (t) => {
  const it = rig(t);
  const listener = new RawListener(t);
  const { localPort, counters } = it.listen({ endpoints: [listener.endpoint] });
  const { client, endpoint } = exchange(t, it, listener, localPort, 'slow');
  shutdownWrite(endpoint.fd);
  it.turns();
  // More than the endpoint's kernel takes unread; the rest waits with the end in the kernel on this side.
  const piece = Buffer.alloc(32 << 10, 'x');
  let sent = 0;
  while (sent < 512 << 10) {
    sent += client.send(piece);
    it.turns(1);
  }
  shutdownWrite(client.fd);
  it.turns();
  assert.equal(counters.open, 0, 'both sides have ended, as far as the worker is concerned');
  assert.ok(it.open().some((fd) => unacknowledgedBytes(fd) > 0));
  const others = [1, 2].map((i) => exchange(t, it, listener, localPort, `${i}`));
  let got = 0;
  for (let received: string | number = ''; ; it.turns(1)) {
    received = read(endpoint.fd);
    if (received === 0) break;
    if (typeof received === 'string') got += received.length;
    else assert.equal(received, -EAGAIN);
  }
  assert.equal(got, sent);
  for (const [i, { client: each }] of others.entries()) assert.equal(read(each.fd), -EAGAIN, `nothing for ${i}`);
});

test('sockets that nobody needs are closed after a while, and those of a frozen or closed worker at once', (t) => {
  const it = rig(t);
  const listener = new RawListener(t);
  const { localPort } = it.listen({ endpoints: [listener.endpoint] });
  const both = () => {
    const some = [1, 2].map((i) => exchange(t, it, listener, localPort, `${i}`));
    for (const { client, endpoint } of some) endCleanly(it, client, endpoint);
  };
  both();
  assert.equal(it.open().length, 2);
  it.pass(1001);
  const { client, endpoint } = exchange(t, it, listener, localPort, 'alone');
  endCleanly(it, client, endpoint);
  it.pass(1001);
  assert.equal(it.open().length, 1, 'one was needed');
  it.pass(1001);
  assert.equal(it.open().length, 0);
  both();
  it.command({ kind: 'freeze', question: 1 });
  assert.equal(it.open().length, 0);
});

test('sockets that are kept for later are given up before clients wait for descriptors', (t) => {
  const it = rig(t, { limit: 32 });
  const listener = new RawListener(t);
  const { localPort } = it.listen({ endpoints: [listener.endpoint] });
  const { client, endpoint } = exchange(t, it, listener, localPort, 'one');
  endCleanly(it, client, endpoint);
  assert.equal(it.open().length, 1);
  // Other threads have all that is not kept for others, but for the parked one.
  it.descriptors.take(23);
  exchange(t, it, listener, localPort, 'at the limit');
  assert.equal(it.open().length, 2, 'those of the open connection');
});

test('a UDP socket takes one flow after another; a late answer reaches nobody else', (t) => {
  const it = rig(t);
  const endpoint = new RawUdpEndpoint(t);
  const { localPort } = it.listen({ protocol: 'UDP', endpoints: [endpoint.endpoint] });
  const ask = (what: string) => {
    const client = rawUdpClient(t, localPort);
    client.send(`question ${what}`);
    it.turns();
    const question = endpoint.question();
    assert.equal(question.text, `question ${what}`);
    return { client, answer: question.answer };
  };
  const first = ask('one');
  const used = it.open();
  assert.equal(used.length, 1);
  it.pass(301);
  assert.deepEqual(it.open(), used, 'it is kept');
  const second = ask('two');
  assert.deepEqual(it.open(), used, 'and used');
  first.answer('late');
  it.turns();
  assert.equal(read(second.client.fd), -EAGAIN);
  second.answer('answer two');
  it.turns();
  assert.equal(read(second.client.fd), 'answer two');
  assert.equal(read(first.client.fd), -EAGAIN);
});

test('an answer that lies unread when its flow ends reaches nobody else', (t) => {
  const it = rig(t);
  const endpoint = new RawUdpEndpoint(t);
  const setup = { protocol: 'UDP', endpoints: [endpoint.endpoint] } as const;
  const former = it.listen(setup, 1);
  const client = rawUdpClient(t, former.localPort);
  client.send('question');
  it.turns();
  const used = it.open();
  // In this order, so that the worker closes the port before it looks at the flow.
  it.post({ kind: 'close', question: 0, port: 1 });
  endpoint.question().answer('unread');
  it.turns();
  assert.equal(read(client.fd), -EAGAIN);
  const { localPort } = it.listen(setup, 2);
  for (let i = 0; i < 3; i++) {
    const other = rawUdpClient(t, localPort);
    other.send('another question');
    it.turns();
    assert.equal(read(other.fd), -EAGAIN);
    endpoint.question().answer('answer');
    it.turns();
    assert.equal(read(other.fd), 'answer');
  }
  assert.ok(used.every((fd) => it.open().includes(fd)));
});
