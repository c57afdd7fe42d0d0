import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { close } from '../../src/sys/descriptor.ts';
import { SOCK_SEQPACKET, socketpair, unacknowledgedBytes } from '../../src/sys/socket.ts';
import { must } from '../../src/sys/sys-error.ts';
import { UnixMessage } from '../../src/sys/unix-socket.ts';
import { Channel } from '../../src/upgrade/channel.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { settle, until } from '../support/until.ts';

/** One end as a channel, the other to say anything with. */
function pair(t: TestContext): { channel: Channel; fd: number; other: Channel; hangUp: () => void } {
  const fds = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, fds));
  const [one = -1, fd = -1] = fds;
  let isOpen = true;
  const hangUp = () => {
    if (isOpen) close(fd);
    isOpen = false;
  };
  t.after(() => {
    close(one);
    hangUp();
  });
  return { channel: new Channel(one, systemClock), fd, other: new Channel(fd, systemClock), hangUp };
}

function sendRaw(fd: number, bytes: Buffer, fds: readonly number[] = []): void {
  const message = new UnixMessage(Math.max(1, bytes.length));
  bytes.copy(message.data.bytes);
  must('sendmsg', message.send(fd, bytes.length, fds));
}

/** A last packet, whose JSON is `text`. */
function framed(text: string, length = Buffer.byteLength(text)): Buffer {
  const head = Buffer.alloc(5);
  head[0] = 1;
  head.writeUInt32LE(length, 1);
  return Buffer.concat([head, Buffer.from(text)]);
}

const soon = () => ({ untilMs: systemClock.now() + 500 });
/** For what must come. */
const late = () => ({ untilMs: systemClock.now() + 60_000 });

test('a message of many packets arrives as one, with all its bytes and descriptors', async (t) => {
  const { channel, other } = pair(t);
  const bytes = Buffer.alloc(3_000_001, 'pattern');
  const fds = Array.from({ length: 700 }, () => 0);
  const sending = other.send({ kind: 'parcel' }, {}, { fds, bytes });
  const received = await channel.receive();
  await sending;
  assert.deepEqual(received?.message, { kind: 'parcel' });
  assert.ok(bytes.equals(received.bytes));
  assert.equal(received.fds.length, 700);
  for (const fd of received.fds) close(fd);
});

test('sending waits for a slow receiver up to its limit', async (t) => {
  const { other } = pair(t);
  const bytes = Buffer.alloc(8 << 20);
  await assert.rejects(other.send({ kind: 'parcel' }, soon(), { fds: [], bytes }), /did not answer in time/);
});

test('an end is not a message, and neither is silence', async (t) => {
  const { channel, hangUp } = pair(t);
  await assert.rejects(channel.receive({ untilMs: systemClock.now() + 20 }), /did not answer in time/);
  hangUp();
  assert.equal(await channel.receive(), undefined);
  await assert.rejects(channel.expect('hello'), /ended before it said "hello"/);
  await assert.rejects(channel.send({ kind: 'adopted' }), /the other process has ended/);
});

test('an end in the middle of a message, or another message than expected, is an error', async (t) => {
  const { channel, fd, other, hangUp } = pair(t);
  await other.send({ kind: 'released' });
  await assert.rejects(channel.expect('adopted'), /said "released" in place of "adopted"/);
  await other.send({ kind: 'failed', err: 'out of luck' });
  await assert.rejects(channel.expect('adopted'), /^Error: out of luck$/);
  sendRaw(fd, Buffer.from([0, 1, 2, 3]));
  hangUp();
  await assert.rejects(channel.receive(), /ended in the middle of a message/);
});

for (const [what, bytes, expected] of [
  ['not JSON', framed('{"kind":'), /no object in JSON/],
  ['not an object', framed('7'), /no object in JSON/],
  ['of an unknown kind', framed('{"kind":"surprise"}'), /of an unknown kind/],
  ['shorter than it says', framed('{}', 99), /cut short/],
  ['without a length', Buffer.from([1, 0]), /cut short/],
  ['a hello without versions', framed('{"kind":"hello","program":"1"}'), /"hello" .* no valid "versions"/],
  ['a hello with strange versions', framed('{"kind":"hello","program":"1","versions":["1"]}'), /"versions"/],
  ['a hello without a program', framed('{"kind":"hello","versions":[1]}'), /"program"/],
  ['a begin without a list of weights', framed('{"kind":"begin","weights":"all"}'), /no valid "weights"/],
  ...[
    80,
    null,
    { address: '10.0.0.1; reboot', port: 80, weight: 0 },
    { address: '10.0.0.1', port: 65_536, weight: 0 },
    { address: '10.0.0.1', port: 80 },
    { address: '10.0.0.1', port: 80, weight: 65_536 },
    { address: '10.0.0.1', port: 80, weight: 0, before: -1 },
  ].map(
    (endpoint) =>
      [
        `a begin with the endpoint ${JSON.stringify(endpoint)}`,
        framed(JSON.stringify({ kind: 'begin', weights: [endpoint] })),
        /"begin" .* no valid "weights"/,
      ] as const,
  ),
  ['an end of a negative number', framed('{"kind":"end","parcels":-1}'), /"end" .* no valid "parcels"/],
  ['a failure without a reason', framed('{"kind":"failed"}'), /"failed" .* no valid "err"/],
] as const) {
  test(`a message that is ${what} is refused in a sentence, and its descriptors are closed`, async (t) => {
    const { channel, fd } = pair(t);
    const count = readdirSync('/proc/self/fd').length;
    sendRaw(fd, bytes, [0, 0]);
    await assert.rejects(channel.receive(late()), expected);
    assert.equal(readdirSync('/proc/self/fd').length, count);
  });
}

test('messages that were sent before the end are received, even after a message that was never read', async (t) => {
  const { channel, other, hangUp } = pair(t);
  await channel.send({ kind: 'released' });
  await other.send({ kind: 'owning' });
  hangUp();
  assert.deepEqual((await channel.receive())?.message, { kind: 'owning' });
  assert.equal(await channel.receive(), undefined);
});

test('work goes on while the other end is silent, and is given up when that is gone', async (t) => {
  const { channel, hangUp } = pair(t);
  assert.equal(await channel.during(Promise.resolve('done')), 'done');
  await assert.rejects(channel.during(Promise.reject(new Error('no source'))), /^Error: no source$/);
  const endless = channel.during(new Promise(() => {}));
  hangUp();
  await assert.rejects(endless, /the other process has ended/);
});

test('descriptors of a message that should have none are closed', async (t) => {
  const { channel, other } = pair(t);
  const count = readdirSync('/proc/self/fd').length;
  await other.send({ kind: 'adopted' }, {}, { fds: [0, 0], bytes: Buffer.alloc(0) });
  await channel.expect('adopted');
  assert.equal(readdirSync('/proc/self/fd').length, count);
});

test('who says something that cannot be read is not taken for gone, and its other messages are kept', async (t) => {
  const { channel, fd, other, hangUp } = pair(t);
  let isClosed = false;
  const closed = channel.closed().then(() => {
    isClosed = true;
  });
  sendRaw(fd, framed('{"kind":"of a later version"}'));
  await other.send({ kind: 'owning' });
  await until('all of it to be read', () => unacknowledgedBytes(fd) === 0);
  await settle();
  assert.equal(isClosed, false);
  hangUp();
  await closed;
  assert.deepEqual((await channel.receive())?.message, { kind: 'owning' });
  assert.equal(await channel.receive(), undefined);
});

test('nothing is said to whoever has the number of a closed descriptor', async (t) => {
  const { channel, hangUp } = pair(t);
  hangUp();
  channel.close();
  // Gets the two lowest free numbers, those that have just been closed.
  const { other } = pair(t);
  await assert.rejects(channel.send({ kind: 'adopted' }), /EBADF/);
  await channel.closed();
  await assert.rejects(other.receive({ untilMs: systemClock.now() }), /did not answer in time/);
});
