import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { DatagramInbox } from '../../src/sys/datagram-inbox.ts';
import { DatagramOutbox } from '../../src/sys/datagram-outbox.ts';
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
  SOCK_DGRAM,
  SOCKET_ADDRESS_BYTES,
  send,
  setOption,
  socket,
} from '../../src/sys/socket.ts';
import { decodePort, encodeSocketAddress } from '../../src/sys/socket-address.ts';
import { EAGAIN, must } from '../../src/sys/sys-error.ts';
import { arrivals, hasArrived } from './arrivals.ts';
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

interface Listener {
  readonly fd: number;
  readonly port: number;
  readonly arrived: () => void;
}

function listen(t: TestContext, { family, wildcard, packetInfo }: Family): Listener {
  const fd = owned(t, socket(family, SOCK_DGRAM));
  must('setsockopt', setOption(fd, packetInfo));
  must('bind', bindTo(fd, encodeSocketAddress(wildcard, 0)));
  const address = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(fd, address));
  return { fd, port: decodePort(address.bytes), arrived: arrivals(t, fd) };
}

function client(t: TestContext, family: number, to: string, port: number): number {
  const fd = owned(t, socket(family, SOCK_DGRAM));
  must('connect', connect(fd, encodeSocketAddress(to, port)));
  return fd;
}

function text(value: string): Memory {
  const memory = new Memory(value.length);
  memory.bytes.write(value);
  return memory;
}

function sendText(fd: number, value: string, to: Listener): void {
  assert.equal(send(fd, text(value), 0, value.length), value.length);
  to.arrived();
}

function received(fd: number): string {
  hasArrived(fd);
  const memory = new Memory(65_536);
  const length = must('recv', recv(fd, memory, 0, 65_536));
  return memory.bytes.toString('latin1', 0, length);
}

for (const each of FAMILIES) {
  describe(`datagrams over ${each.name}`, () => {
    test('come with client, local address and content, many at a time', (t) => {
      const listener = listen(t, each);
      const { fd, port } = listener;
      const inbox = new DatagramInbox(4);
      const clients = each.addresses.flatMap((to) => [
        client(t, each.family, to, port),
        client(t, each.family, to, port),
      ]);
      for (let round = 0; round < 3; round++) {
        clients.forEach((sender, i) => {
          sendText(sender, `${'x'.repeat(round * i)}${i}`, listener);
        });
        assert.equal(inbox.receive(fd), clients.length);
        const keys = clients.map((_, i) => `${inbox.localKey(i)} ${inbox.clientKey(i)}`);
        assert.equal(new Set(keys).size, clients.length);
        assert.equal(new Set(clients.map((_, i) => inbox.localKey(i))).size, each.addresses.length);
        clients.forEach((_, i) => {
          const content = inbox.data.bytes.toString('latin1', inbox.offset(i), inbox.offset(i) + inbox.bytes(i));
          assert.equal(content, `${'x'.repeat(round * i)}${i}`);
          assert.equal(inbox.clientAddress(i), each.addresses[0]);
        });
      }
      assert.equal(inbox.receive(fd), -EAGAIN);
    });

    test('are answered from the address that each client used', (t) => {
      const listener = listen(t, each);
      const { fd, port } = listener;
      const backend = listen(t, each);
      const inbox = new DatagramInbox(4);
      const outbox = new DatagramOutbox(4);
      const clients = each.addresses.map((to) => client(t, each.family, to, port));
      for (const sender of clients) sendText(sender, 'ask', listener);
      assert.equal(inbox.receive(fd), clients.length);
      clients.forEach((_, i) => {
        sendText(client(t, each.family, each.addresses[0], backend.port), `answer ${i}`, backend);
        assert.equal(outbox.receive(backend.fd, outbox.room), 1);
        assert.equal(outbox.direct(1, inbox.replyPath(i)), 8);
      });
      assert.equal(outbox.flush(fd), 0);
      // A connected socket takes datagrams only from the address that it is connected to.
      clients.forEach((sender, i) => {
        assert.equal(received(sender), `answer ${i}`);
      });
    });

    for (const size of [0, 1, 1472, 65_507]) {
      test(`of ${size} bytes are whole after one of another size in the same slot`, (t) => {
        const listener = listen(t, each);
        const { fd, port } = listener;
        const [inbox, outbox] = [new DatagramInbox(1), new DatagramOutbox(1)];
        const sender = client(t, each.family, each.addresses[0], port);
        for (const content of ['before', 'y'.repeat(size), 'after']) {
          sendText(sender, content, listener);
          assert.equal(inbox.receive(fd), 1);
          assert.equal(inbox.bytes(0), content.length);
          const path = inbox.replyPath(0);
          sendText(sender, content, listener);
          assert.equal(outbox.receive(fd, 1), 1);
          assert.equal(outbox.direct(1, path), content.length);
          assert.equal(outbox.flush(fd), 0);
          assert.equal(received(sender), content);
        }
      });
    }
  });
}
