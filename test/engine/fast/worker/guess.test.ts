import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Guess } from '../../../../src/engine/fast/worker/guess.ts';

/** Which of so many occasions are tried. */
function tried(guess: Guess, occasions: number, paysAt: (occasion: number) => boolean): readonly number[] {
  const found: number[] = [];
  for (let i = 0; i < occasions; i++) {
    const { isWorthwhile } = guess;
    if (isWorthwhile) found.push(i);
    guess.note(isWorthwhile && paysAt(i));
  }
  return found;
}

test('a call that pays is made each time, one that never does now and then, to learn if that changes', () => {
  assert.equal(tried(new Guess(), 200, () => true).length, 200);
  assert.deepEqual(
    tried(new Guess(), 200, () => false),
    [0, 1, 2, 3, 64, 128, 192],
  );
  assert.deepEqual(
    tried(new Guess(), 70, (i) => i >= 60),
    [0, 1, 2, 3, 64, 65, 66, 67, 68, 69],
  );
});
