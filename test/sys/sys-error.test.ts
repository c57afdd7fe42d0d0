import assert from 'node:assert/strict';
import { test } from 'node:test';
import { close } from '../../src/sys/descriptor.ts';
import { EPOLLOUT, Epoll } from '../../src/sys/epoll.ts';
import { Memory } from '../../src/sys/memory.ts';
import { AF_INET, connect, recv, SOCK_STREAM, send, socket, takeError } from '../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../src/sys/socket-address.ts';
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

test('a failing call gives its negative errno, each its own', (t) => {
  const [one, other] = ownedPair(t);
  const memory = new Memory(8);
  assert.equal(recv(one, memory, 0, 8), -EAGAIN);
  assert.equal(recv(-1, memory, 0, 8), -EBADF);
  assert.equal(recv(one, memory, 0, 8), -EAGAIN);
  assert.equal(send(other, memory, 0, 8), 8);
  assert.equal(recv(one, memory, 0, 8), 8);
});

test('sending to a peer that has gone is an error, not a signal', (t) => {
  const fds = ownedPair(t);
  close(fds[1]);
  assert.equal(send(fds[0], new Memory(1), 0, 1), -EPIPE);
});

test('a refused connection is told once', async (t) => {
  const epoll = new Epoll(1);
  owned(t, epoll.fd);
  const fd = owned(t, socket(AF_INET, SOCK_STREAM));
  // Port 1 of an address that nobody listens at.
  assert.equal(connect(fd, encodeSocketAddress('127.9.9.9', 1)), -EINPROGRESS);
  epoll.add(fd, EPOLLOUT, 0);
  assert.equal(epoll.wait(PATIENCE_MS), 1);
  assert.equal(takeError(fd), ECONNREFUSED);
  assert.equal(takeError(fd), 0);
});

test('an unexpected failure throws what failed and why', () => {
  assert.equal(must('read', 3), 3);
  assert.throws(
    () => must('listen', -EMFILE),
    (err) => {
      assert.ok(err instanceof SysError);
      assert.deepEqual([err.errno, err.code], [EMFILE, 'EMFILE']);
      assert.equal(err.message, 'listen: EMFILE (too many open files)');
      return true;
    },
  );
});

test('an errno has its name, also one that nobody knows', () => {
  assert.equal(errnoName(ECONNREFUSED), 'ECONNREFUSED');
  assert.equal(describeErrno(ECONNREFUSED), 'ECONNREFUSED (connection refused)');
  assert.equal(describeErrno(4000), 'errno 4000');
});

test('running out of descriptors or memory is exhaustion, a refusal is not', () => {
  assert.ok(isExhaustion(EMFILE));
  assert.ok(!isExhaustion(ECONNREFUSED));
  assert.ok(!isExhaustion(0));
});
