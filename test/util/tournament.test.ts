import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Tournament } from '../../src/util/tournament.ts';
import { seededRandom } from '../support/seeded-random.ts';

const PLACES = [0, 1, 2, 3, 7, 8, 9, 100];

test('after any changes the winner has the lowest cost, and of equals the one that has not won for the longest', () => {
  for (const places of PLACES) {
    const random = seededRandom(places + 1);
    const draw = (below: number): number => Math.floor(random() * below);
    const costs = Array.from({ length: places }, () => draw(4));
    /** From the one that won the longest ago to the last winner. */
    const order = [...costs.keys()];
    const tournament = new Tournament(costs);
    for (let step = 0; step < 300; step++) {
      const lowest = Math.min(...costs);
      const expected = order.find((place) => costs[place] === lowest) ?? -1;
      assert.equal(tournament.winner, expected, `${places} places, step ${step}`);
      assert.equal(
        tournament.winnerOf(() => true),
        expected,
      );
      if (places === 0) continue;
      const isAllowed = (place: number) => place % 2 === step % 2;
      const allowed = order.filter(isAllowed);
      const least = Math.min(...allowed.map((place) => costs[place] ?? 0));
      assert.equal(tournament.winnerOf(isAllowed), allowed.find((place) => costs[place] === least) ?? -1);
      const place = draw(places);
      if (draw(2) === 0) {
        tournament.won(place);
        order.push(...order.splice(order.indexOf(place), 1));
      } else {
        costs[place] = draw(4);
        tournament.set(place, costs[place]);
        assert.equal(tournament.costOf(place), costs[place]);
      }
    }
  }
});

test('the order of equals continues in another one', () => {
  for (const places of PLACES) {
    const before = new Tournament(new Array<number>(places).fill(1));
    const random = seededRandom(places + 1);
    for (let step = 0; step < 3 * places; step++) before.won(Math.floor(random() * places));
    const after = new Tournament(new Array<number>(places).fill(1), before.record());
    for (let step = 0; step < 2 * places; step++) {
      assert.equal(after.winner, before.winner);
      after.won(after.winner);
      before.won(before.winner);
    }
  }
});
