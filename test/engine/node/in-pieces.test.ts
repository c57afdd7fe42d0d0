import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inPieces } from '../../../src/engine/node/in-pieces.ts';

async function sizes(all: Iterable<number | undefined>): Promise<readonly number[]> {
  const pieces: number[] = [];
  for await (const piece of inPieces(all)) pieces.push(piece.length);
  return pieces;
}

test('pieces are of 256 at most, what was looked at in vain counts, and none is empty', async () => {
  assert.deepEqual(await sizes([]), []);
  assert.deepEqual(await sizes(Array.from({ length: 600 }, (_, i) => i)), [256, 256, 88]);
  assert.deepEqual(await sizes(Array.from({ length: 512 }, (_, i) => (i % 2 === 0 ? i : undefined))), [128, 128]);
  assert.deepEqual(await sizes(Array.from({ length: 600 }, () => undefined)), []);
});

test('nothing is looked at before it is wanted, and between two pieces the event loop turns', async () => {
  let [looked, turns] = [0, 0];
  function* all() {
    for (; looked < 600; looked++) yield looked;
  }
  let isOver = false;
  const turn = (): void => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  const seen: [number, number][] = [];
  const pieces = inPieces(all());
  assert.equal(looked, 0);
  for await (const _ of pieces) seen.push([looked, turns]);
  isOver = true;
  const [first, second, third] = seen;
  assert.deepEqual([first?.[0], second?.[0], third?.[0]], [255, 511, 600]);
  assert.ok(Number(second?.[1]) > Number(first?.[1]) && Number(third?.[1]) > Number(second?.[1]), seen.join(' '));
});
