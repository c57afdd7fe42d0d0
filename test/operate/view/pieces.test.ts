import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inPieces } from '../../../src/operate/view/pieces.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

function sizes(rows: Iterable<unknown>, clock = new ManualClock()): number[] {
  return [...inPieces(rows, clock, String)].map(({ length }) => length);
}

describe('rows', () => {
  test('come in their order, as text', () => {
    const rows = Array.from({ length: 250 }, (_, index) => index);
    assert.deepEqual([...inPieces(rows, new ManualClock(), String)].flat(), rows.map(String));
  });

  test('are at most a hundred a piece', () => {
    assert.deepEqual(sizes(Array(250).fill(0)), [100, 100, 50]);
    assert.deepEqual(sizes(Array(200).fill(0)), [100, 100]);
    assert.deepEqual(sizes([]), []);
  });

  test('are fewer when they are large', () => {
    assert.deepEqual(sizes(Array(7).fill('x'.repeat(30_000))), [3, 3, 1]);
    assert.deepEqual(sizes(['x'.repeat(1_000_000), 'x'.repeat(1_000_000)]), [1, 1]);
  });

  test('are fewer when it takes long to make them', () => {
    const clock = new ManualClock();
    function* slow() {
      for (let row = 0; row < 5; row++) {
        clock.advance(1);
        yield row;
      }
    }
    assert.deepEqual(sizes(slow(), clock), [2, 2, 1]);
  });

  test('are not made before they are asked for', () => {
    let made = 0;
    let isOver = false;
    function* rows() {
      try {
        for (;;) yield made++;
      } finally {
        isOver = true;
      }
    }
    for (const _ of inPieces(rows(), new ManualClock(), String)) {
      assert.equal(made, 100);
      break;
    }
    assert.ok(isOver);
  });
});
