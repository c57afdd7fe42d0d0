import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Holding, holdingCells } from '../../src/engine/holdings.ts';
import { KeptBytes } from '../../src/engine/kept-bytes.ts';

const CHUNK = 64 << 10;

test('a namespace whose endpoints never answer leaves others something to keep, and gives back what it took', () => {
  const kept = new KeptBytes();
  const portOf = (cells: SharedArrayBuffer) => ({ keptBytes: 0, holding: new Holding(cells, 0) });
  const [hogs, others] = [holdingCells(1), holdingCells(1)];
  for (let round = 1; round <= 2; round++) {
    const ports = Array.from({ length: 6 }, () => portOf(hogs));
    const takes = ports.flatMap((port) => Array.from({ length: 64 }, () => kept.tryTake(port, CHUNK) && port));
    const taken = takes.filter((port) => port !== false);
    assert.equal(new Holding(hogs, 0).keptBytes, taken.length * CHUNK);
    assert.ok(taken.length * CHUNK >= 3 << 20 && taken.length * CHUNK < 3.5 * (1 << 20), `${taken.length} chunks`);
    const other = portOf(others);
    for (let i = 0; i < 8; i++) assert.ok(kept.tryTake(other, CHUNK));
    for (let i = 0; i < 8; i++) kept.give(other, CHUNK);
    for (const port of taken) kept.give(port, CHUNK);
    assert.equal(new Holding(hogs, 0).keptBytes, 0);
  }
});
