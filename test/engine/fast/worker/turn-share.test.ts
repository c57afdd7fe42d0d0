import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventLoop, type Task } from '../../../../src/engine/fast/worker/event-loop.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { TurnShare } from '../../../../src/engine/fast/worker/turn-share.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';

const MIB = 1 << 20;

test('streams that could go on for ever share each turn fairly, and keep it short', (t) => {
  const owners = new Uint8Array(64);
  const loop = new EventLoop({ clock: new ManualClock(), owner: 1, owners, status: new Int32Array(STATUS_WORDS) });
  t.after(() => {
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === 1) close(fd);
  });
  const share = new TurnShare(loop);
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
