import '../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, describe, type TestContext, test } from 'node:test';
import { openFlowSocket, openListenSocket, stopReceiving } from '../../src/engine/fast/listen-socket.ts';
import { DatagramInbox, type ReplyPath } from '../../src/sys/datagram-inbox.ts';
import { close, waitReadable } from '../../src/sys/descriptor.ts';
import { Memory } from '../../src/sys/memory.ts';
import { bindTo, connect, getsockname, SOCK_DGRAM, send, setOption, socket } from '../../src/sys/socket.ts';
import { decodePort, encodeSocketAddress, familyOfText } from '../../src/sys/socket-address.ts';
import { EADDRINUSE, must } from '../../src/sys/sys-error.ts';
import { listenSpec } from '../support/listen-spec.ts';

/*
 * What docs/adr/0037 takes for granted of the kernel: a socket that is bound to a UDP listener's address and port, and
 * connected to one of its clients, receives that client's datagrams, and the listener all others.
 */

const SO_REUSEPORT = { level: 1, name: 15, value: 1 };

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

function udpSocket(t: TestContext, address: string): number {
  const fd = must('socket', socket(familyOfText(address), SOCK_DGRAM));
  t.after(() => close(fd));
  return fd;
}

/** A client of this port. Returns what sends a text. */
function client(t: TestContext, address: string, port: number): (text: string) => void {
  const fd = udpSocket(t, address);
  must('connect', connect(fd, encodeSocketAddress(address, port)));
  return (text) => {
    const memory = new Memory(text.length);
    memory.bytes.set(Buffer.from(text));
    must('send', send(fd, memory, 0, text.length));
  };
}

function portOf(fd: number): number {
  const name = new Memory(28);
  must('getsockname', getsockname(fd, name));
  return decodePort(name.bytes);
}

const inbox = new DatagramInbox(16);

/** The texts that wait at a socket. `count`: so many are expected, perhaps of another processor. */
function received(fd: number, count: number): readonly string[] {
  const texts: string[] = [];
  while (texts.length < count && waitReadable(fd, 10_000) === 1) {
    const some = inbox.receive(fd);
    for (let i = 0; i < some; i++) texts.push(Buffer.from(inbox.copy(i)).toString());
  }
  assert.ok(inbox.receive(fd) < 0, 'there is no more');
  return texts;
}

function pathOfNext(fd: number): ReplyPath {
  assert.equal(waitReadable(fd, 10_000), 1);
  assert.equal(inbox.receive(fd), 1);
  return inbox.replyPath(0);
}

for (const [family, wildcard, address] of [
  ['IPv4', '0.0.0.0', '127.0.0.1'],
  ['IPv6', '::', '::1'],
] as const) {
  for (const bound of [wildcard, address]) {
    describe(`a flow's own socket beside a listener at ${bound}`, () => {
      const listener = (t: TestContext) => {
        const spec = listenSpec({ name: 'a/b', protocol: 'UDP', address: bound, port: 0, family });
        const { fd, localPort } = openListenSocket(spec);
        t.after(() => close(fd));
        return { fd, port: localPort };
      };
      const flowSocket = (t: TestContext, fd: number, path: ReplyPath) => {
        const own = openFlowSocket(fd, path);
        t.after(() => close(own));
        return own;
      };

      test('gets the datagrams of its client, and the listener all others', (t) => {
        const { fd, port } = listener(t);
        const [one, two] = [client(t, address, port), client(t, address, port)];
        one('first');
        const own = flowSocket(t, fd, pathOfNext(fd));
        one('second');
        // Of as many strangers a hash would give some to each socket of a group.
        const strangers = Array.from({ length: 60 }, () => client(t, address, port));
        for (const [number, send] of strangers.entries()) send(`stranger ${number}`);
        two('other');
        assert.deepEqual(received(own, 1), ['second']);
        assert.deepEqual(received(fd, 61), [...strangers.keys()].map((n) => `stranger ${n}`).concat('other'));
      });

      test('keeps what others send between its bind and its connect, with their names', (t) => {
        const { fd, port } = listener(t);
        const one = client(t, address, port);
        const strangers = Array.from({ length: 60 }, () => client(t, address, port));
        one('first');
        pathOfNext(fd);
        const own = udpSocket(t, address);
        must('setsockopt', setOption(fd, SO_REUSEPORT));
        must('setsockopt', setOption(own, SO_REUSEPORT));
        if (family === 'IPv6') must('setsockopt', setOption(own, { level: 41, name: 26, value: 1 }));
        must('bind', bindTo(own, encodeSocketAddress(address, port)));
        for (const [number, send] of strangers.entries()) send(`${number}`);
        const another = udpSocket(t, address);
        must('connect', connect(another, encodeSocketAddress(address, port)));
        must('connect', connect(own, encodeSocketAddress(address, portOf(another))));
        let texts: string[] = [];
        while (texts.length < 60) {
          const some = [own, fd].map((each) => inboxOf(each));
          texts = texts.concat(...some);
          if (some.every(({ length }) => length === 0)) waitReadable(own, 10);
        }
        assert.deepEqual(
          texts.map(Number).toSorted((a, b) => a - b),
          [...strangers.keys()],
        );
      });

      test('receives no more once it was stopped, and its queue can still be read', (t) => {
        const { fd, port } = listener(t);
        const one = client(t, address, port);
        one('first');
        const own = flowSocket(t, fd, pathOfNext(fd));
        one('second');
        assert.equal(waitReadable(own, 10_000), 1);
        stopReceiving(own);
        one('third');
        assert.deepEqual(received(fd, 1), ['third']);
        assert.deepEqual(received(own, 1), ['second']);
      });

      test('does not let another listener have the port', (t) => {
        const { fd, port } = listener(t);
        client(t, address, port)('first');
        flowSocket(t, fd, pathOfNext(fd));
        const other = udpSocket(t, address);
        assert.equal(bindTo(other, encodeSocketAddress(bound, port)), -EADDRINUSE);
      });
    });
  }
}

function inboxOf(fd: number): readonly string[] {
  const some = inbox.receive(fd);
  return Array.from({ length: Math.max(some, 0) }, (_, i) => Buffer.from(inbox.copy(i)).toString());
}
