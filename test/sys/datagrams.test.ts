import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { DatagramInbox } from '../../src/sys/datagram-inbox.ts';
import { DatagramOutbox } from '../../src/sys/datagram-outbox.ts';
import { runLength } from '../../src/sys/datagram-slots.ts';
import { waitReadable } from '../../src/sys/descriptor.ts';
import { EPOLLET, EPOLLIN, Epoll } from '../../src/sys/epoll.ts';
import { Memory } from '../../src/sys/memory.ts';
import {
  AF_INET,
  AF_INET6,
  bindTo,
  connect,
  getsockname,
  IP_PKTINFO,
  IPPROTO_IP,
  IPPROTO_IPV6,
  IPV6_RECVPKTINFO,
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
import { PATIENCE_MS } from '../netns/wait.ts';
import { owned } from './descriptors.ts';

const FAMILIES = [
  {
    name: 'IPv4',
    family: AF_INET,
    wildcard: '0.0.0.0',
    addresses: ['127.0.0.1', '127.0.0.2'],
    packetInfo: { level: IPPROTO_IP, name: IP_PKTINFO, value: 1 },
  },
  {
    name: 'IPv6',
    family: AF_INET6,
    wildcard: '::',
    addresses: ['::1'],
    packetInfo: { level: IPPROTO_IPV6, name: IPV6_RECVPKTINFO, value: 1 },
  },
] as const;

type Family = (typeof FAMILIES)[number];
const [IPV4] = FAMILIES;

interface Listener {
  readonly fd: number;
  readonly port: number;
  /** Waits for one more datagram: the kernel may deliver it after `send` has returned. */
  readonly arrived: () => void;
}

function listen(t: TestContext, { family, wildcard, packetInfo }: Family): Listener {
  const fd = owned(t, socket(family, SOCK_DGRAM));
  must('setsockopt', setOption(fd, packetInfo));
  setOption(fd, { level: SOL_SOCKET, name: SO_RCVBUF, value: 1 << 20 });
  must('bind', bindTo(fd, encodeSocketAddress(wildcard, 0)));
  const address = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(fd, address));
  const epoll = new Epoll(1);
  owned(t, epoll.fd);
  must('epoll_ctl', epoll.add(fd, EPOLLIN | EPOLLET, 0));
  return { fd, port: decodePort(address.bytes), arrived: () => assert.equal(epoll.wait(PATIENCE_MS), 1) };
}

function client(t: TestContext, family: number, to: string, port: number): number {
  const fd = owned(t, socket(family, SOCK_DGRAM));
  setOption(fd, { level: SOL_SOCKET, name: SO_RCVBUF, value: 1 << 20 });
  must('connect', connect(fd, encodeSocketAddress(to, port)));
  return fd;
}

function sendTexts(fd: number, texts: readonly string[], to: Listener): void {
  for (const text of texts) {
    must('send', send(fd, Memory.of(Buffer.from(text)), 0, text.length));
    to.arrived();
  }
}

function receiveTexts(fd: number, count: number): string[] {
  const memory = new Memory(65_536);
  return Array.from({ length: count }, () => {
    assert.equal(waitReadable(fd, PATIENCE_MS), 1);
    return memory.bytes.toString('latin1', 0, must('recv', recv(fd, memory, 0, 65_536)));
  });
}

function assertEmpty(fd: number): void {
  assert.equal(recv(fd, new Memory(1), 0, 1), -EAGAIN);
}

for (const each of FAMILIES) {
  describe(`datagrams over ${each.name}`, () => {
    test('are received many at a time, with client, local address and content', (t) => {
      const listener = listen(t, each);
      const inbox = new DatagramInbox(4);
      const clients = each.addresses.flatMap((to) => [
        client(t, each.family, to, listener.port),
        client(t, each.family, to, listener.port),
      ]);
      for (let round = 0; round < 3; round++) {
        const texts = clients.map((_, i) => `${'x'.repeat(round * i)}${i}`);
        clients.forEach((sender, i) => {
          sendTexts(sender, [texts[i] ?? ''], listener);
        });
        assert.equal(inbox.receive(listener.fd), clients.length);
        const keys = clients.map((_, i) => `${inbox.localKey(i)} ${inbox.clientKey(i)}`);
        assert.equal(new Set(keys).size, clients.length);
        assert.equal(new Set(clients.map((_, i) => inbox.localKey(i))).size, each.addresses.length);
        clients.forEach((_, i) => {
          const begin = inbox.offset(i);
          assert.equal(inbox.data.bytes.toString('latin1', begin, begin + inbox.bytes(i)), texts[i]);
          assert.equal(inbox.clientAddress(i), each.addresses[0]);
        });
      }
      assert.equal(inbox.receive(listener.fd), -EAGAIN);
    });

    test('are answered from the address that each client used', (t) => {
      const [listener, backend] = [listen(t, each), listen(t, each)];
      const [inbox, outbox] = [new DatagramInbox(4), new DatagramOutbox(4)];
      const clients = each.addresses.map((to) => client(t, each.family, to, listener.port));
      for (const sender of clients) sendTexts(sender, ['ask'], listener);
      assert.equal(inbox.receive(listener.fd), clients.length);
      clients.forEach((_, i) => {
        sendTexts(client(t, each.family, each.addresses[0], backend.port), [`answer ${i}`], backend);
        assert.equal(outbox.receive(backend.fd, outbox.room), 1);
        assert.equal(outbox.direct(1, inbox.replyPath(i)), 8);
      });
      assert.equal(outbox.flush(listener.fd), 0);
      // A connected socket receives only from the address that it is connected to.
      clients.forEach((sender, i) => {
        assert.deepEqual(receiveTexts(sender, 1), [`answer ${i}`]);
      });
    });

    for (const size of [0, 1, 1472, 65_507]) {
      test(`of ${size} bytes are whole after one of another size in the same slot`, (t) => {
        const listener = listen(t, each);
        const [inbox, outbox] = [new DatagramInbox(1), new DatagramOutbox(1)];
        const sender = client(t, each.family, each.addresses[0], listener.port);
        for (const content of ['before', 'y'.repeat(size), 'after']) {
          sendTexts(sender, [content], listener);
          assert.equal(inbox.receive(listener.fd), 1);
          assert.equal(inbox.bytes(0), content.length);
          const path = inbox.replyPath(0);
          sendTexts(sender, [content], listener);
          assert.equal(outbox.receive(listener.fd, 1), 1);
          assert.equal(outbox.direct(1, path), content.length);
          assert.equal(outbox.flush(listener.fd), 0);
          assert.deepEqual(receiveTexts(sender, 1), [content]);
        }
      });
    }
  });
}

describe('a run of datagrams', () => {
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
    test(`of ${sizes.slice(0, 6)} bytes is ${length} long`, () => {
      const found = runLength(0, sizes.length, (i) => sizes[i] ?? 0);
      assert.equal(found, length);
    });
  }

  const TEXTS = ['aaaaaa', 'bbbbbb', 'cccccc', 'ddd', 'eeeeeeee', '', 'ffffffff'];

  test('arrives as separate datagrams', (t) => {
    const [listener, backend] = [listen(t, IPV4), listen(t, IPV4)];
    const onward = client(t, AF_INET, '127.0.0.1', backend.port);
    const sender = client(t, AF_INET, '127.0.0.1', listener.port);
    const inbox = new DatagramInbox(16);
    for (let round = 0; round < 2; round++) {
      sendTexts(sender, TEXTS, listener);
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

  test('finds its client among the replies of several flows', (t) => {
    const [listener, backend] = [listen(t, IPV4), listen(t, IPV4)];
    const clients = [1, 2, 3].map(() => client(t, AF_INET, '127.0.0.1', listener.port));
    const [inbox, outbox] = [new DatagramInbox(4), new DatagramOutbox(32)];
    for (const fd of clients) sendTexts(fd, ['hello'], listener);
    assert.equal(inbox.receive(listener.fd), clients.length);
    const pusher = client(t, AF_INET, '127.0.0.1', backend.port);
    const textsOf = (i: number) => TEXTS.map((text) => text.replaceAll(/./g, String(i)));
    for (let round = 0; round < 2; round++) {
      clients.forEach((_, i) => {
        sendTexts(pusher, textsOf(i), backend);
        assert.equal(outbox.receive(backend.fd, outbox.room), TEXTS.length);
        assert.equal(outbox.direct(TEXTS.length, inbox.replyPath(i)), TEXTS.join('').length);
      });
      assert.equal(outbox.room, 32 - clients.length * TEXTS.length);
      assert.equal(outbox.flush(listener.fd), 0);
      assert.equal(outbox.room, 32);
      clients.forEach((fd, i) => {
        assert.deepEqual(receiveTexts(fd, TEXTS.length), textsOf(i));
        assertEmpty(fd);
      });
    }
  });
});
