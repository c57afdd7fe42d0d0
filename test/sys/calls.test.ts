import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { close, pipe, read, resizePipe, splice } from '../../src/sys/descriptor.ts';
import { EPOLLET, EPOLLIN, EPOLLOUT, Epoll } from '../../src/sys/epoll.ts';
import { Memory } from '../../src/sys/memory.ts';
import {
  AF_INET,
  AF_INET6,
  bindTo,
  connect,
  getsockname,
  recv,
  SOCK_DGRAM,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  send,
  socket,
  takeError,
} from '../../src/sys/socket.ts';
import { decodeAddress, decodePort, encodeSocketAddress, familyOfText } from '../../src/sys/socket-address.ts';
import {
  describeErrno,
  EAGAIN,
  ECONNREFUSED,
  EINPROGRESS,
  EMFILE,
  EPIPE,
  errnoName,
  isExhaustion,
  must,
  SysError,
} from '../../src/sys/sys-error.ts';
import { PATIENCE_MS } from '../netns/wait.ts';
import { owned, ownedPair } from './descriptors.ts';

const EBADF = 9;

describe('epoll', () => {
  const seen = (epoll: Epoll, count: number) =>
    Array.from({ length: count }, (_, i) => [epoll.descriptor(i), epoll.tag(i), epoll.events(i)]);

  test('every event of a batch has its own descriptor and tag', (t) => {
    const epoll = new Epoll(8);
    owned(t, epoll.fd);
    const fds = Array.from({ length: 4 }, () => ownedPair(t)[0]);
    const tags = [0, 1, -1, 0x7fff_ffff];
    fds.forEach((fd, i) => {
      assert.equal(epoll.add(fd, EPOLLOUT, tags[i] ?? 0), 0);
    });
    const expected = fds.map((fd, i) => [fd, tags[i], EPOLLOUT]);
    assert.deepEqual(seen(epoll, epoll.wait(0)), expected);
  });

  test('an edge is reported once, a level as long as it lasts', (t) => {
    const epoll = new Epoll(8);
    owned(t, epoll.fd);
    const [edge, edgePeer] = ownedPair(t);
    const [level, levelPeer] = ownedPair(t);
    epoll.add(edge, EPOLLIN | EPOLLET, 1);
    epoll.add(level, EPOLLIN, 2);
    for (const peer of [edgePeer, levelPeer]) send(peer, new Memory(1), 0, 1);
    assert.equal(epoll.wait(0), 2);
    assert.deepEqual(seen(epoll, epoll.wait(0)), [[level, 2, EPOLLIN]]);
    recv(level, new Memory(1), 0, 1);
    assert.equal(epoll.wait(0), 0);
    epoll.modify(level, EPOLLIN | EPOLLOUT, 3);
    assert.deepEqual(seen(epoll, epoll.wait(0)), [[level, 3, EPOLLOUT]]);
    epoll.remove(level);
    assert.equal(epoll.wait(0), 0);
  });
});

test('bytes outside a memory are never passed to the kernel', (t) => {
  const [one, other] = ownedPair(t);
  const memory = new Memory(16);
  for (const [offset, length] of [
    [0, 17],
    [16, 1],
    [-1, 4],
    [0, -1],
    [Number.NaN, 1],
    [0, Number.NaN],
  ] as const) {
    assert.throws(() => send(one, memory, offset, length), RangeError);
    assert.throws(() => recv(other, memory, offset, length), RangeError);
  }
  assert.equal(send(one, memory, 16, 0), 0);
});

describe('a pipe', () => {
  test('carries bytes from one socket to another', (t) => {
    const [from, source] = ownedPair(t);
    const [to, sink] = ownedPair(t);
    const ends = new Int32Array(2);
    assert.equal(pipe(ends), 0);
    const [readEnd, writeEnd] = [owned(t, ends[0] ?? -1), owned(t, ends[1] ?? -1)];
    const memory = Memory.of(Buffer.from(Array.from({ length: 50_000 }, (_, i) => i % 251)));
    assert.equal(splice(from, writeEnd, 50_000), -EAGAIN);
    assert.equal(send(source, memory, 0, 50_000), 50_000);
    assert.equal(splice(from, writeEnd, 30_000), 30_000);
    assert.equal(splice(readEnd, to, 30_000), 30_000);
    const received = new Memory(50_000);
    assert.equal(recv(sink, received, 0, 50_000), 30_000);
    assert.ok(received.bytes.subarray(0, 30_000).equals(memory.bytes.subarray(0, 30_000)));
    assert.equal(splice(from, writeEnd, 50_000), 20_000);
    assert.equal(read(readEnd, received, 0, 50_000), 20_000);
    assert.ok(received.bytes.subarray(0, 20_000).equals(memory.bytes.subarray(30_000)));
  });

  test('is enlarged as far as the user may, and its size is returned', (t) => {
    const ends = new Int32Array(2);
    pipe(ends);
    const [writeEnd] = [owned(t, ends[1] ?? -1), owned(t, ends[0] ?? -1)];
    assert.equal(resizePipe(writeEnd, 1 << 20), 1 << 20);
    assert.equal(resizePipe(writeEnd, 2 ** 31), 1 << 20, 'what cannot be had changes nothing');
  });
});

describe('a socket address', () => {
  for (const [address, port, shown = address] of [
    ['10.1.2.3', 80],
    ['255.255.255.255', 65_535],
    ['0.0.0.0', 0],
    ['fd00:96::1', 443],
    ['::', 1],
    ['2001:db8::', 53],
    ['2001:db8:1:2:3:4:5:6', 53],
    ['64:ff9b::192.0.2.33', 53, '64:ff9b::c000:221'],
    ['::ffff:10.1.2.3', 80, '10.1.2.3'],
  ] as const) {
    test(`of ${address} port ${port} is decoded to ${shown}`, () => {
      const { bytes } = encodeSocketAddress(address, port);
      assert.deepEqual([decodeAddress(bytes), decodePort(bytes)], [shown, port]);
      assert.equal(bytes.length, familyOfText(address) === AF_INET ? 16 : 28);
    });
  }

  for (const [family, address] of [
    [AF_INET, '127.0.0.9'],
    [AF_INET6, '::1'],
  ] as const) {
    test(`is what the kernel expects: ${address}`, (t) => {
      const fd = owned(t, socket(family, SOCK_DGRAM));
      assert.equal(bindTo(fd, encodeSocketAddress(address, 0)), 0);
      const bound = new Memory(SOCKET_ADDRESS_BYTES);
      assert.equal(getsockname(fd, bound), 0);
      assert.equal(decodeAddress(bound.bytes), address);
      assert.ok(decodePort(bound.bytes) > 0);
    });
  }
});

describe('a failing call', () => {
  test('returns its own negative errno', (t) => {
    const [one, other] = ownedPair(t);
    const memory = new Memory(8);
    assert.equal(recv(one, memory, 0, 8), -EAGAIN);
    assert.equal(recv(-1, memory, 0, 8), -EBADF);
    assert.equal(recv(one, memory, 0, 8), -EAGAIN);
    assert.equal(send(other, memory, 0, 8), 8);
    assert.equal(recv(one, memory, 0, 8), 8);
  });

  test('that sends to a peer that is gone raises no signal', (t) => {
    const fds = ownedPair(t);
    close(fds[1]);
    assert.equal(send(fds[0], new Memory(1), 0, 1), -EPIPE);
  });

  test('that was a refused connection is reported once', (t) => {
    const epoll = new Epoll(1);
    owned(t, epoll.fd);
    const fd = owned(t, socket(AF_INET, SOCK_STREAM));
    // Nobody listens at port 1 of this address.
    assert.equal(connect(fd, encodeSocketAddress('127.9.9.9', 1)), -EINPROGRESS);
    epoll.add(fd, EPOLLOUT, 0);
    assert.equal(epoll.wait(PATIENCE_MS), 1);
    assert.equal(takeError(fd), ECONNREFUSED);
    assert.equal(takeError(fd), 0);
  });

  test('that was not expected to fail throws what failed and why', () => {
    assert.equal(must('read', 3), 3);
    assert.throws(() => must('listen', -EMFILE), {
      name: SysError.name,
      errno: EMFILE,
      code: 'EMFILE',
      message: 'listen: EMFILE (too many open files)',
    });
    assert.equal(errnoName(ECONNREFUSED), 'ECONNREFUSED');
    assert.equal(describeErrno(4000), 'errno 4000');
    assert.deepEqual([EMFILE, ECONNREFUSED, 0].map(isExhaustion), [true, false, false]);
  });
});
