import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { collectRows, printSeries, type SeriesFamily, type SeriesRow } from '../../src/http/service-port-metrics.ts';
import { COUNTERS, type Counters } from '../../src/model/data-plane.ts';

const ZERO = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
const FAMILY: SeriesFamily = { name: 'x_total', type: 'counter', help: 'X', series: [{ counters: ['connections'] }] };

function rows(count: number): SeriesRow[] {
  return Array.from({ length: count }, (_, row) => ({ labels: `row="${row}"`, counters: { ...ZERO, connections: 1 } }));
}

/** How many turns of the event loop pass while `work` goes on. */
async function turnsDuring(work: Promise<unknown>): Promise<number> {
  let turns = 0;
  let isOver = false;
  void work.finally(() => {
    isOver = true;
  });
  while (!isOver) {
    await new Promise((resolve) => setImmediate(resolve));
    turns += 1;
  }
  return turns;
}

describe('reading', () => {
  test('keeps the first rows, adds up the listeners of one Service port, and adds the other rows up in one more', async () => {
    const two = rows(2);
    const collected = await collectRows([...two, ...two, ...two], { max: 1, others: 'row="others"' });
    assert.deepEqual(collected, [
      { labels: 'row="0"', counters: { ...ZERO, connections: 3 } },
      { labels: 'row="others"', counters: { ...ZERO, connections: 3 } },
    ]);
    assert.equal(two[0]?.counters.connections, 1, 'what is read is not written to');
  });

  test('lets the event loop turn', async () => {
    const turns = await turnsDuring(collectRows(rows(10_000), { max: 10, others: '' }));
    assert.ok(turns >= 40, `${turns}`);
  });

  test('tolerates rows that are added and deleted at the same time', async () => {
    const live = new Map(rows(1_000).map((row) => [row.labels, row]));
    const collecting = collectRows(live.values(), { max: 10_000, others: '' });
    live.delete('row="999"');
    live.set('row="new"', { labels: 'row="new"', counters: ZERO });
    const labels = (await collecting).map((row) => row.labels);
    assert.equal(labels.length, 1_000);
    assert.deepEqual([labels.includes('row="999"'), labels.includes('row="new"')], [false, true]);
  });
});

describe('printing', () => {
  test('comes in parts that are small, with a turn of the event loop after each', async () => {
    let largest = 0;
    let parts = 0;
    let text = '';
    const work = (async () => {
      for await (const part of printSeries([FAMILY, { ...FAMILY, name: 'y_total' }], rows(10_000))) {
        largest = Math.max(largest, part.split('\n').length);
        parts += 1;
        text += part;
      }
    })();
    const turns = await turnsDuring(work);
    assert.ok(largest <= 510, `${largest} lines`);
    assert.equal(parts, 40);
    assert.ok(turns >= 40, `${turns}`);
    const lines = text.trimEnd().split('\n');
    assert.equal(lines.length, 20_004);
    assert.deepEqual(lines.slice(0, 3), ['# HELP x_total X', '# TYPE x_total counter', 'x_total{row="0"} 1']);
    assert.equal(lines[10_002], '# HELP y_total X');
  });
});
