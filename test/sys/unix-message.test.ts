import assert from 'node:assert/strict';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { close, waitReadable } from '../../src/sys/descriptor.ts';
import { SOCK_SEQPACKET, socketpair } from '../../src/sys/socket.ts';
import { EAGAIN, EMSGSIZE, EPIPE, must } from '../../src/sys/sys-error.ts';
import { MAX_MESSAGE_DESCRIPTORS, UnixMessage } from '../../src/sys/unix-socket.ts';

function pair(t: TestContext): readonly [number, number] {
  const fds = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, fds));
  const [one = -1, other = -1] = fds;
  t.after(() => {
    close(one);
    close(other);
  });
  return [one, other];
}

function packet(text: string): UnixMessage {
  const message = new UnixMessage(64);
  message.data.bytes.write(text);
  return message;
}

test('bytes and descriptors arrive together, the descriptors as copies that are closed on exec', (t) => {
  const [one, other] = pair(t);
  const file = openSync(import.meta.filename, 'r');
  t.after(() => closeSync(file));
  assert.equal(packet('hello').send(one, 5, [file, file]), 5);
  assert.equal(packet('more').send(one, 4, []), 4);

  const message = new UnixMessage(64);
  assert.equal(message.receive(other), 5);
  assert.equal(message.data.bytes.toString('latin1', 0, 5), 'hello');
  const { fds } = message;
  assert.equal(fds.length, 2);
  assert.equal(new Set([file, ...fds]).size, 3);
  for (const fd of fds) {
    assert.equal(fstatSync(fd).ino, fstatSync(file).ino);
    assert.match(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'), /flags:\s+02[0-7]*$/m, 'O_CLOEXEC');
    close(fd);
  }
  assert.equal(message.isTruncated, false);
  assert.equal(message.receive(other), 4);
  assert.deepEqual(message.fds, [], 'the ones before were of another message');
  assert.equal(message.receive(other), -EAGAIN);
});

test('a message carries as many descriptors as the kernel allows', (t) => {
  const [one, other] = pair(t);
  const fds = Array.from({ length: MAX_MESSAGE_DESCRIPTORS }, () => 0);
  assert.equal(packet('x').send(one, 1, fds), 1);
  const message = new UnixMessage(64);
  assert.equal(message.receive(other), 1);
  assert.equal(message.fds.length, MAX_MESSAGE_DESCRIPTORS);
  assert.equal(message.isTruncated, false);
  for (const fd of message.fds) close(fd);
});

test('a truncated message is marked, and a packet that is too long for the socket is refused', (t) => {
  const [one, other] = pair(t);
  assert.equal(packet('longer than').send(one, 11, []), 11);
  const message = new UnixMessage(4);
  assert.equal(message.receive(other), 4);
  assert.equal(message.isTruncated, true);
  assert.equal(new UnixMessage(4 << 20).send(one, 4 << 20, []), -EMSGSIZE);
});

test('a closed peer is distinguished from a silent one', (t) => {
  const fds = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, fds));
  const [one = -1, other = -1] = fds;
  t.after(() => close(other));
  const message = new UnixMessage(4);
  assert.equal(waitReadable(other, 0), 0);
  close(one);
  assert.equal(waitReadable(other, 1000), 1);
  assert.equal(message.receive(other), 0);
  assert.equal(message.send(other, 1, []), -EPIPE);
});
