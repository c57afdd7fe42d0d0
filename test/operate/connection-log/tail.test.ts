import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_QUEUED, SIGN_OF_LIFE_MS, Tail } from '../../../src/operate/connection-log/tail.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { settle } from '../../support/until.ts';
import { entry } from './entries.ts';

function rig() {
  const clock = new ManualClock();
  const dropped: number[] = [];
  const ending = new AbortController();
  const isWanted = ({ name }: { readonly name: string }) => name !== 'default/other';
  const tail = new Tail({ clock, isWanted, onDropped: (count) => dropped.push(count) });
  const pieces = tail.pieces(ending.signal);
  const next = async () => (await pieces.next()).value;
  return { clock, dropped, ending, tail, next };
}

test('what is wanted arrives, and a sign of life when nothing does', async () => {
  const { clock, ending, tail, next } = rig();
  assert.deepEqual(await next(), { entries: [], missing: 0 }, 'it follows');
  const first = next();
  await settle();
  tail.ended([entry({ name: 'default/other' }), entry()]);
  assert.deepEqual(await first, { entries: [entry()], missing: 0 });
  const quiet = next();
  await settle();
  clock.advance(SIGN_OF_LIFE_MS);
  assert.deepEqual(await quiet, { entries: [], missing: 0 });
  const last = next();
  ending.abort();
  assert.equal(await last, undefined);
  assert.equal(clock.pendingTimers, 0);
});

test('a slow reader misses entries, is told how many, and then gets all again', async () => {
  const { dropped, tail, next } = rig();
  await next();
  const many = Array.from({ length: MAX_QUEUED + 3 }, (_, i) => entry({ receivedBytes: i }));
  tail.ended(many);
  tail.ended([entry()]);
  tail.lost(10);
  assert.deepEqual(dropped, [3, 1], 'what the engine lost is not counted twice');
  const got: unknown[] = [];
  for (let piece = await next(); piece.missing === 0; piece = await next()) got.push(...piece.entries);
  assert.deepEqual(got, many.slice(0, MAX_QUEUED));
  tail.ended([entry({ sentBytes: 1 })]);
  assert.deepEqual(await next(), { entries: [entry({ sentBytes: 1 })], missing: 0 });
});

test('the number of missing ones comes after what came before them', async () => {
  const { tail, next } = rig();
  await next();
  tail.ended([entry()]);
  tail.lost(2);
  assert.deepEqual(
    [await next(), await next()],
    [
      { entries: [entry()], missing: 0 },
      { entries: [], missing: 2 },
    ],
  );
});
