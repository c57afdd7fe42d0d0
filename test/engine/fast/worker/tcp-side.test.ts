import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { createShares, Resource, Share, shareTable } from '../../../../src/engine/core/shares.ts';
import { COUNTER } from '../../../../src/engine/core/target.ts';
import { EventLoop, type Task } from '../../../../src/engine/fast/worker/event-loop.ts';
import { type Pipe, PipePool } from '../../../../src/engine/fast/worker/pipe-pool.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { TcpSide } from '../../../../src/engine/fast/worker/tcp-side.ts';
import { TurnBudget } from '../../../../src/engine/fast/worker/turn-budget.ts';
import { SCRATCH_BYTES, type WorkerContext } from '../../../../src/engine/fast/worker/worker-context.ts';
import { COUNTERS } from '../../../../src/model/data-plane.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv, SOCK_STREAM, send, socketpair } from '../../../../src/sys/socket.ts';
import { EAGAIN, must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { OPTIONS } from '../rig.ts';

/** A loop that nothing else uses. Its descriptors are closed after the test. */
function loopOf(t: TestContext): EventLoop {
  const owners = new Uint8Array(4096);
  t.after(() => {
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === 1) close(fd);
  });
  return new EventLoop({
    clock: new ManualClock(),
    owner: 1,
    owners,
    status: new Int32Array(STATUS_WORDS),
    onWaited: () => {},
    onFault: (err) => {
      throw err;
    },
  });
}

const SHARES = createShares({ taken: shareTable(1), row: 0, descriptorLimit: 1 << 20, options: OPTIONS });

/** The two sides of a connection, and the far ends of both: what is sent into `sender` comes out at `reader`. */
function joined(t: TestContext, worker: Partial<WorkerContext>, table = shareTable(1)) {
  const counters = new Float64Array(COUNTERS.length);
  const port = { worker, thread: worker, counters, share: new Share(table, 0) };
  const connection = {
    port,
    target: undefined,
    moved: () => {},
    onPortion: () => {},
  } as unknown as ConstructorParameters<typeof TcpSide>[0];
  const fds = new Int32Array(4);
  must('socketpair', socketpair(SOCK_STREAM, fds.subarray(0, 2)));
  must('socketpair', socketpair(SOCK_STREAM, fds.subarray(2)));
  const [sender, fromFd, toFd, reader] = fds as unknown as [number, number, number, number];
  t.after(() => {
    for (const fd of fds) close(fd);
  });
  const [from, to] = [new TcpSide(connection, fromFd, 'client'), new TcpSide(connection, toFd, 'endpoint')];
  [from.peer, to.peer] = [to, from];
  return { sender, from, to, reader, counters };
}

test('a stream splices where slow readers hold all pipes, leaves its own when it stalls itself, and loses nothing', (t) => {
  const loop = loopOf(t);
  const pipes = new PipePool({ loop, max: 1, descriptors: { isScarce: false, take: () => {} } });
  const worker = {
    loop,
    pipes,
    turnBudget: new TurnBudget(loop),
    scratch: new Memory(SCRATCH_BYTES),
    options: OPTIONS,
    shares: SHARES,
  };
  const { sender, from, to, reader } = joined(t, worker);

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

test('a header waits for a peer that takes nothing yet, and comes before what is read', (t) => {
  const loop = loopOf(t);
  const worker = {
    loop,
    turnBudget: new TurnBudget(loop),
    scratch: new Memory(SCRATCH_BYTES),
    options: OPTIONS,
    shares: SHARES,
  };
  const { sender, from, to, reader, counters } = joined(t, worker);

  must('send', send(sender, Memory.of(Buffer.from(' and bytes')), 0, 10));
  from.isReadable = true;
  to.isWritable = false;
  from.beginWith(Buffer.from('header'));
  assert.equal(from.pump(), undefined);
  assert.equal(Buffer.from(from.record().rest ?? []).toString(), 'header', 'a successor gets it');
  to.isWritable = true;
  assert.equal(from.pump(), undefined);
  const received = new Memory(64);
  const bytes = must('recv', recv(reader, received, 0, 64));
  assert.equal(received.bytes.toString('latin1', 0, bytes), 'header and bytes');
  assert.equal(counters[COUNTER.receivedBytes], 10);
});

test('a namespace with its share of bytes that nobody takes keeps 4 KiB of each further stream, and loses none', (t) => {
  const loop = loopOf(t);
  const limits = { column: 3, max: 1 << 20, addsUp: 'never' } as const;
  const stalledBytes = new Resource(limits, new Share(shareTable(1), 0), loop);
  const pipes = new PipePool({ loop, max: 0, descriptors: { isScarce: true, take: () => {} } });
  const shares = { ...SHARES, stalledBytes };
  const turnBudget = new TurnBudget(loop);
  const worker = { loop, pipes, turnBudget, scratch: new Memory(SCRATCH_BYTES), options: OPTIONS, shares };
  const [large, other] = [shareTable(1), shareTable(1)];
  const sent = Memory.of(randomBytes(1 << 20));
  /** A stream whose receiver takes nothing, until its sender cannot go on. */
  const stall = (table: SharedArrayBuffer) => {
    const stream = joined(t, worker, table);
    const { sender, from } = stream;
    let bytes = 0;
    for (let more = 1; more > 0; bytes += Math.max(0, more)) {
      more = send(sender, sent, bytes, sent.length - bytes);
      from.isReadable = true;
      assert.equal(from.pump(), undefined);
      loop.turn(0);
    }
    return { ...stream, bytes };
  };
  const streams = Array.from({ length: 40 }, () => stall(large));
  const kept = streams.map(({ from }) => from.record().rest?.length ?? 0);
  assert.ok(Math.max(...kept) > 32 << 10, `${kept}`);
  assert.ok(
    kept.slice(-10).every((bytes) => bytes > 0 && bytes <= 4 << 10),
    `${kept}`,
  );
  assert.ok(kept.reduce((sum, bytes) => sum + bytes) < (1 << 20) + 40 * (4 << 10), `${kept}`);
  const another = stall(other);
  assert.ok((another.from.record().rest?.length ?? 0) > 4 << 10, 'the share of another namespace is its own');

  for (const { from, to, reader, bytes } of [...streams, another]) {
    const received = new Memory(sent.length);
    let total = 0;
    for (let got = 1; total < bytes; total += Math.max(0, got)) {
      got = recv(reader, received, total, received.length - total);
      to.isWritable = true;
      from.isReadable = true;
      assert.equal(from.pump(), undefined);
      loop.turn(0);
    }
    assert.ok(received.bytes.subarray(0, bytes).equals(sent.bytes.subarray(0, bytes)));
  }
  for (const table of [large, other]) assert.ok(new Int32Array(table).every((amount) => amount === 0));
});

const MIB = 1 << 20;

test('streams that could go on for ever share each turn fairly, and keep it short', (t) => {
  const loop = loopOf(t);
  const share = new TurnBudget(loop);
  const moved = new Array<number>(128).fill(0);
  let inTurn = 0;
  let smallest = MIB;
  const streams = moved.map((_, index): Task => {
    const stream = {
      run: () => {
        const bytes = share.portion();
        share.moved(bytes);
        moved[index] = (moved[index] as number) + bytes;
        inTurn += bytes;
        smallest = Math.min(smallest, bytes);
        share.await(stream);
      },
    };
    return stream;
  });
  for (const stream of streams) stream.run();
  assert.ok(inTurn <= 12 * MIB, `the first turn, in which all have events: ${inTurn} bytes`);
  smallest = MIB;
  for (let turn = 0; turn < 1000; turn++) {
    inTurn = 0;
    loop.turn(0);
    assert.ok(inTurn > 0 && inTurn <= 5 * MIB, `a later one: ${inTurn} bytes`);
  }
  assert.equal(
    smallest,
    MIB,
    'what has waited for its turn moves as much as it can in one piece, which costs the least',
  );
  const rounds = moved.map((bytes) => bytes / Math.max(...moved));
  assert.ok(Math.min(...rounds) > 0.5, `the least of them got ${Math.min(...rounds)} of what the luckiest did`);
});

function poolOf(t: TestContext, max: number, isScarce = false): PipePool {
  return new PipePool({ loop: loopOf(t), max, descriptors: { isScarce, take: () => {} } });
}

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

test('pipes are large, limited to the maximum and one more, and reused', (t) => {
  const pool = poolOf(t, 1);
  const one = pool.take();
  assert.equal(pool.areScarce, false);
  const two = pool.take();
  assert.deepEqual([one?.capacity, two?.capacity], [1 << 20, 1 << 20]);
  assert.equal(pool.areScarce, true);
  assert.equal(pool.take(), undefined);
  pool.give(one as Pipe);
  assert.equal(pool.areScarce, false);
  assert.equal(pool.take(), one);
});

test('the pool closes pipes with bytes inside and most idle ones, and opens none when descriptors run short', (t) => {
  const [pool, scarce] = [poolOf(t, 40), poolOf(t, 40, true)];
  const before = openDescriptors();
  pool.discard(pool.take() as Pipe);
  assert.equal(scarce.take(), undefined);
  assert.equal(openDescriptors(), before);
  const pipes = Array.from({ length: 40 }, () => pool.take() as Pipe);
  for (const pipe of pipes) pool.give(pipe);
  assert.equal(openDescriptors(), before + 2 * 16);
});
