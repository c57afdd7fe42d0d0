import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Fault, Losses } from '../../bench/soak/faults.ts';
import { grows } from '../../bench/soak/growth.ts';
import { Report } from '../../bench/soak/report.ts';
import { seededRandom } from '../support/seeded-random.ts';

describe('growth', () => {
  const random = seededRandom(3);
  const noisy = (count: number, at: (minute: number) => number) =>
    Array.from({ length: count }, (_, minute) => at(minute) + 10 * random());

  test('a leak is found: the longer the run, the smaller', () => {
    assert.ok(
      grows(
        noisy(14, (minute) => 100 + 6 * minute),
        5,
      ),
    );
    assert.ok(
      grows(
        noisy(240, (minute) => 100 + 0.35 * minute),
        5,
      ),
    );
  });

  test('neither noise nor a warm-up is a leak', () => {
    for (let run = 0; run < 1_000; run++)
      assert.ok(
        !grows(
          noisy(20, () => 100),
          5,
        ),
      );
    assert.ok(
      !grows(
        noisy(30, (minute) => 100 + 20 * Math.min(minute, 10)),
        5,
      ),
    );
  });

  test('of a few figures nothing can be said', () => {
    assert.ok(!grows([], 0));
    assert.ok(!grows([1, 2, 3, 4, 5, 6], 0));
  });
});

describe('the report of a soak', () => {
  const NOTHING: Losses = { calls: 0, questions: 0, transfers: 0, corrupt: 0, held: 0, flows: 0 };
  const REST = { rss: 100, helper: 50, descriptors: 500, chains: 9, rules: 90, ports: 30, retired: 0, conntrack: 9 };
  const quiet: Fault = { name: 'none', begin: async () => undefined };
  const dying: Fault = { ...quiet, name: 'endpoint dies', explains: { calls: 4 } };
  const round = (fault: Fault, lost: Partial<Losses>, rss = 100) => ({
    fault,
    tally: { calls: 9, questions: 9, transfers: 9, changes: 9, lost: { ...NOTHING, ...lost } },
    rest: { ...REST, rss },
    isUpgrade: false,
  });

  for (const [what, rounds, isGood] of [
    ['an upgrade in the first round is none', [{ ...round(quiet, {}), isUpgrade: true }, round(quiet, {})], true],
    ['what a fault explains is none', [round(dying, { calls: 4 })], true],
    ['more than that is a trouble', [round(dying, { calls: 5 })], false],
    ['other bytes are a trouble', [round(dying, { corrupt: 1 })], false],
    ['so is any loss without a fault', [round(quiet, { held: 1 })], false],
    ['and growth', Array.from({ length: 20 }, (_, minute) => round(quiet, {}, 100 + 5 * minute)), false],
    [
      'but not memory that stays',
      Array.from({ length: 20 }, (_, minute) => round(quiet, {}, 100 + (minute % 7))),
      true,
    ],
  ] as const) {
    test(what, (t) => {
      t.mock.method(console, 'log', () => {});
      const report = new Report();
      report.begin(REST);
      for (const each of rounds) report.round(each);
      report.summarize();
      assert.equal(report.isGood, isGood);
    });
  }
});
