import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { PipePool } from '../../../../src/engine/fast/worker/pipe-pool.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { type SideOwner, TcpSide } from '../../../../src/engine/fast/worker/tcp-side.ts';
import { TurnShare } from '../../../../src/engine/fast/worker/turn-share.ts';
import { SCRATCH_BYTES } from '../../../../src/engine/fast/worker/worker-context.ts';
import { COUNTERS } from '../../../../src/model/data-plane.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv, SOCK_STREAM, send, socketpair } from '../../../../src/sys/socket.ts';
import { EAGAIN, must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { OPTIONS } from '../rig.ts';

test('a stream splices where slow readers hold all pipes, leaves its own when it stalls itself, and loses nothing', (t) => {
  const owners = new Uint8Array(256);
  const loop = new EventLoop({ clock: new ManualClock(), owner: 1, owners, status: new Int32Array(STATUS_WORDS) });
  const pipes = new PipePool({ loop, max: 1, descriptorCeiling: 256 });
  const worker = { loop, pipes, share: new TurnShare(loop), scratch: new Memory(SCRATCH_BYTES), options: OPTIONS };
  const port = { worker, counters: new Float64Array(COUNTERS.length) };
  const connection = { port, target: undefined, moved: () => {}, onPortion: () => {} } as unknown as SideOwner;
  const fds = new Int32Array(4);
  must('socketpair', socketpair(SOCK_STREAM, fds.subarray(0, 2)));
  must('socketpair', socketpair(SOCK_STREAM, fds.subarray(2)));
  const [sender, fromFd, toFd, reader] = fds as unknown as [number, number, number, number];
  t.after(() => {
    for (const fd of fds) close(fd);
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === 1) close(fd);
  });
  const [from, to] = [new TcpSide(connection, fromFd, 'client'), new TcpSide(connection, toFd, 'client')];
  [from.peer, to.peer] = [to, from];

  const slow = pipes.take();
  assert.ok(slow !== undefined);
  let hasSpliced = false;
  const take = pipes.take.bind(pipes);
  pipes.take = () => {
    const pipe = take();
    hasSpliced ||= pipe !== undefined;
    return pipe;
  };

  const sent = randomBytes(4 << 20);
  const outgoing = new Memory(sent.length);
  sent.copy(outgoing.bytes);
  const incoming = new Memory(sent.length);
  let [sentBytes, receivedBytes] = [0, 0];
  for (let stalls = 0; receivedBytes < sent.length; stalls++) {
    assert.ok(stalls < 1000, 'it does not go on');
    to.isWritable = true;
    for (let tries = 0; tries < 1000; tries++) {
      sentBytes += Math.max(0, send(sender, outgoing, sentBytes, sent.length - sentBytes));
      from.isReadable = true;
      assert.equal(from.pump(), undefined);
      if (from.pending > 0 || sentBytes === sent.length) break;
      loop.turn(0);
    }
    assert.equal(pipes.areScarce, false, 'it stalls, without a pipe');
    for (let got = 1; got > 0; receivedBytes += Math.max(0, got)) {
      got = recv(reader, incoming, receivedBytes, sent.length - receivedBytes);
      assert.ok(got >= 0 || got === -EAGAIN);
    }
  }
  assert.ok(hasSpliced);
  assert.ok(incoming.bytes.equals(sent), 'the bytes differ');
  pipes.discard(slow);
});
