import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { DatagramInbox } from '../../src/sys/datagram-inbox.ts';
import { DatagramOutbox } from '../../src/sys/datagram-outbox.ts';
import { runLength } from '../../src/sys/datagram-slots.ts';
import { Memory } from '../../src/sys/memory.ts';
import {
  AF_INET,
  bindTo,
  connect,
  getsockname,
  IP_PKTINFO,
  IPPROTO_IP,
  recv,
  SO_RCVBUF,
  SOCK_DGRAM,
  SOCKET_ADDRESS_BYTES,
  SOL_SOCKET,
  send,
  setOption,
  socket,
} from '../../src/sys/socket.ts';
import { decodePort, encodeSocketAddress } from '../../src/sys/socket-address.ts';
import { EAGAIN, must } from '../../src/sys/sys-error.ts';
import { arrivals, hasArrived } from './arrivals.ts';
import { owned } from './descriptors.ts';

describe('the length of a run', () => {
  for (const [sizes, length] of [
    [[64], 1],
    [[64, 64, 64], 3],
    [[64, 64, 30, 30], 3],
    [[64, 65, 64], 1],
    [[64, 64, 0, 64], 2],
    [[0, 0], 1],
    [[1472, 1472], 2],
    [[1473, 1473], 1],
    [Array(100).fill(10), 64],
    [Array(64).fill(1400), 46],
  ] as const) {
    test(`of datagrams of ${sizes.slice(0, 6)} bytes is ${length}`, () => {
      assert.equal(
        runLength(0, sizes.length, (i) => sizes[i] ?? 0),
        length,
      );
    });
  }

  test('ends where the caller says', () => {
    assert.equal(
      runLength(2, 5, () => 10),
      3,
    );
  });
});

interface Endpoint {
  readonly fd: number;
  readonly address: Memory;
  readonly arrived: () => void;
}

/** A socket that clients and endpoints can be made of, with room for many datagrams. */
function endpoint(t: Parameters<typeof owned>[0]): Endpoint {
  const fd = owned(t, socket(AF_INET, SOCK_DGRAM));
  setOption(fd, { level: SOL_SOCKET, name: SO_RCVBUF, value: 1 << 20 });
  setOption(fd, { level: IPPROTO_IP, name: IP_PKTINFO, value: 1 });
  must('bind', bindTo(fd, encodeSocketAddress('127.0.0.1', 0)));
  const bound = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(fd, bound));
  const address = encodeSocketAddress('127.0.0.1', decodePort(bound.bytes));
  return { fd, address, arrived: arrivals(t, fd) };
}

function sendTexts(fd: number, texts: readonly string[], to: Endpoint): void {
  for (const text of texts) {
    const memory = new Memory(text.length);
    memory.bytes.write(text);
    must('send', send(fd, memory, 0, text.length));
    to.arrived();
  }
}

function receiveTexts(fd: number, count: number): string[] {
  const memory = new Memory(65_536);
  return Array.from({ length: count }, () => {
    hasArrived(fd);
    return memory.bytes.toString('latin1', 0, must('recv', recv(fd, memory, 0, 65_536)));
  });
}

function assertEmpty(fd: number): void {
  assert.equal(recv(fd, new Memory(1), 0, 1), -EAGAIN);
}

const TEXTS = ['aaaaaa', 'bbbbbb', 'cccccc', 'ddd', 'eeeeeeee', '', 'ffffffff'];

test('a run that goes on arrives as the datagrams that it was made of', (t) => {
  const [listener, client, backend] = [endpoint(t), endpoint(t), endpoint(t)];
  const onward = owned(t, socket(AF_INET, SOCK_DGRAM));
  must('connect', connect(onward, backend.address));
  must('connect', connect(client.fd, listener.address));
  const inbox = new DatagramInbox(16);
  for (let round = 0; round < 2; round++) {
    sendTexts(client.fd, TEXTS, listener);
    assert.equal(inbox.receive(listener.fd), TEXTS.length);
    const lengths: number[] = [];
    const received: string[] = [];
    for (let i = 0; i < TEXTS.length; i += lengths.at(-1) ?? 1) {
      const length = inbox.run(i, TEXTS.length);
      lengths.push(length);
      assert.ok(inbox.sendRun(onward, i, length) >= 0);
      received.push(...receiveTexts(backend.fd, length));
    }
    assert.deepEqual(lengths, [4, 1, 1, 1]);
    assert.deepEqual(received, TEXTS);
    assertEmpty(backend.fd);
  }
});

test('replies of several flows find their clients, in runs and alone', (t) => {
  const [listener, backend] = [endpoint(t), endpoint(t)];
  const clients = [endpoint(t), endpoint(t), endpoint(t)];
  const [inbox, outbox] = [new DatagramInbox(4), new DatagramOutbox(32)];
  for (const { fd } of clients) {
    must('connect', connect(fd, listener.address));
    sendTexts(fd, ['hello'], listener);
  }
  assert.equal(inbox.receive(listener.fd), clients.length);
  const pusher = owned(t, socket(AF_INET, SOCK_DGRAM));
  must('connect', connect(pusher, backend.address));
  for (let round = 0; round < 2; round++) {
    clients.forEach((_, i) => {
      const texts = TEXTS.map((text) => text.replaceAll(/./g, String(i)));
      sendTexts(pusher, texts, backend);
      assert.equal(outbox.receive(backend.fd, outbox.room), texts.length);
      assert.equal(outbox.direct(texts.length, inbox.replyPath(i)), texts.join('').length);
    });
    assert.equal(outbox.room, 32 - clients.length * TEXTS.length);
    assert.equal(outbox.flush(listener.fd), 0);
    assert.equal(outbox.room, 32);
    clients.forEach(({ fd }, i) => {
      const texts = TEXTS.map((text) => text.replaceAll(/./g, String(i)));
      assert.deepEqual(receiveTexts(fd, texts.length), texts);
      assertEmpty(fd);
    });
  }
});
