import assert from 'node:assert/strict';
import { test } from 'node:test';
import { statusCsv, statusJson } from '../../../src/http/page/exports.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

for (const [name, make] of Object.entries({ statusJson, statusCsv })) {
  test(`${name} gives way to other work between two pieces, and renders every Service`, async () => {
    const clock = new ManualClock();
    // Each Service takes two milliseconds, as one with very many endpoints does.
    class Slow extends FakeView {
      override *services() {
        for (const service of super.services()) {
          clock.advance(2);
          yield service;
        }
      }
    }
    const view = new Slow({ services: 10 });
    const made: number[] = [];
    let text = '';
    for await (const part of make(view, clock)) {
      made.push(view.made);
      text += part;
    }
    assert.deepEqual([...new Set(made)], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (const { name: each } of new FakeView({ services: 10 }).services()) {
      assert.ok(text.includes(each.split(/[/:]/)[1] as string), each);
    }
  });
}
