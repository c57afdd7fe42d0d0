import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { SchedulerName } from '../../../src/model/scheduler.ts';
import type { Member } from '../../../src/services/member.ts';
import { MaglevTables } from '../../../src/services/schedulers/maglev-tables.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { Balancer, clientOf, equal, hostOf, type Weights } from './balancer.ts';

const ONE_TO_THREE: Weights = new Map([
  [1, 1],
  [2, 3],
]);

function assertShares(balancer: Balancer, expected: Weights, { connections = 20_000, within = 0.05 } = {}): void {
  const total = [...expected.values()].reduce((sum, each) => sum + each, 0);
  const shares = balancer.shares(connections);
  for (const [host, weight] of expected) {
    const share = (shares.get(host) ?? 0) / connections;
    assert.ok(Math.abs(share - weight / total) < within * (weight / total), `${host} has ${share}`);
  }
}

describe('wrr', () => {
  test('weights 1:3 split 400 connections 100:300, and every four of them 1:3', () => {
    const balancer = new Balancer('wrr', ONE_TO_THREE);
    for (let round = 0; round < 100; round++) {
      assert.deepEqual([...balancer.shares(4)], [...ONE_TO_THREE], `round ${round}`);
    }
  });

  test('any weights are exact after each whole round, also after a long time', () => {
    const random = seededRandom(5);
    for (let seed = 1; seed <= 50; seed++) {
      const weights = new Map([...equal(2 + (seed % 9)).keys()].map((host) => [host, 1 + Math.floor(random() * 40)]));
      const total = [...weights.values()].reduce((sum, each) => sum + each, 0);
      const balancer = new Balancer('wrr', weights, { seed });
      for (let round = 0; round < 20; round++) assert.deepEqual([...balancer.shares(total)], [...weights]);
    }
  });

  test('turns are mixed: a heavy endpoint has no long runs', () => {
    const balancer = new Balancer(
      'wrr',
      new Map([
        [1, 60],
        [2, 30],
        [3, 30],
      ]),
    );
    const hosts = Array.from({ length: 400 }, () => hostOf(balancer.connect()));
    assert.ok(!/1,1,1,1|2,2|3,3/.test(hosts.join()), hosts.join());
  });

  test('an endpoint that failed every dial for long does not get what it has missed', () => {
    const balancer = new Balancer('wrr', equal(3));
    for (let index = 0; index < 300; index++) {
      const pick = balancer.picker.pick(clientOf(index), 0);
      let member = pick.next();
      if (member !== undefined && hostOf(member) === 1) member = pick.next();
    }
    assert.deepEqual([...balancer.shares(30).values()], [10, 10, 10]);
  });
});

/** What is least is written down here without regard to how the scheduler finds it. */
const LEAST: Readonly<Record<'lc' | 'wlc' | 'sed' | 'nq', (open: number, weight: number) => number>> = {
  lc: (open) => open,
  wlc: (open, weight) => open / weight,
  sed: (open, weight) => (open + 1) / weight,
  nq: (open, weight) => (open === 0 ? 0 : (open + 1) / weight),
};

for (const [name, load] of Object.entries(LEAST) as [keyof typeof LEAST, (typeof LEAST)['lc']][]) {
  describe(name, () => {
    test('each connection goes to one of the least loaded, whichever end and come', () => {
      for (let seed = 1; seed <= 40; seed++) {
        const random = seededRandom(seed);
        const draw = (below: number): number => Math.floor(random() * below);
        const some = (): Weights => new Map(Array.from({ length: 1 + draw(8) }, () => [1 + draw(9), 1 + draw(5)]));
        const balancer = new Balancer(name, some(), { seed });
        const open: Member[] = [];
        for (let step = 0; step < 200; step++) {
          if (draw(20) === 0) balancer.update(some());
          const loads = balancer.picker.pool.members.map((each) => load(each.open, each.weight));
          const chosen = balancer.picker.peek('192.0.2.1', 0) as Member;
          const ofChosen = load(chosen.open, chosen.weight);
          assert.ok(ofChosen <= Math.min(...loads) + 1e-9, `seed ${seed}, step ${step}`);
          open.push(balancer.connect());
          if (draw(3) === 0) open.splice(draw(open.length), 1)[0]?.released();
        }
      }
    });

    test('equal endpoints without connections take turns', () => {
      const balancer = new Balancer(name, equal(5));
      assert.deepEqual([...balancer.shares(50).values()], [10, 10, 10, 10, 10]);
    });
  });
}

for (const name of ['lc', 'wlc', 'sed', 'nq'] as const) {
  test(`${name}: while one holds ten connections, the next ten go to the other`, () => {
    const balancer = new Balancer(name, new Map([[1, 1]]));
    const held = Array.from({ length: 10 }, () => balancer.connect());
    balancer.update(equal(2));
    const next = balancer.held(10);
    assert.deepEqual([...next], [[2, 10]]);
    for (const each of held) each.released();
    assert.deepEqual([...balancer.held(10)], [[1, 10]]);
  });

  test(`${name}: connections that drain with their endpoint count when it comes back`, () => {
    const balancer = new Balancer(name, equal(2));
    balancer.held(20);
    const { endpoints, ...rest } = balancer.backends(equal(2));
    balancer.picker.update({ ...rest, endpoints: endpoints.slice(0, 1), draining: endpoints.slice(1) }, 0);
    balancer.held(5);
    balancer.update(equal(2));
    assert.deepEqual([...balancer.held(5)], [[2, 5]]);
  });
}

test('wlc and sed: held connections are in proportion to weights', () => {
  for (const name of ['wlc', 'sed'] as const) {
    assert.deepEqual(
      [...new Balancer(name, ONE_TO_THREE).held(400)],
      [
        [1, 100],
        [2, 300],
      ],
    );
  }
});

test('twos: held connections are nearly even, and a busy endpoint gets fewer', () => {
  const shares = new Balancer('twos', equal(10)).held(10_000);
  for (const [host, count] of shares) assert.ok(Math.abs(count - 1000) < 10, `${host}: ${count}`);
  const balancer = new Balancer('twos', equal(2));
  const busy = balancer.connect();
  while (balancer.picker.pool.members.some((each) => each !== busy && each.open > 0)) assert.fail('one is open');
  for (let more = 0; more < 50; more++) busy.taken();
  // Both draws are of the busy one in a quarter of all cases.
  assert.ok((balancer.held(40).get(hostOf(busy)) ?? 0) < 20);
});

describe('random', () => {
  test('shares are in proportion to weights', () => {
    assertShares(new Balancer('random', equal(10)), equal(10), { within: 0.1 });
    assertShares(new Balancer('random', ONE_TO_THREE), ONE_TO_THREE);
  });

  test('the connections of an endpoint that refuses spread over all others', () => {
    const balancer = new Balancer('random', equal(5));
    const counts = new Map<number, number>();
    for (let index = 0; index < 10_000; index++) {
      const pick = balancer.picker.pick(clientOf(index), 0);
      let member = pick.next() as Member;
      if (hostOf(member) === 1) member = pick.next() as Member;
      counts.set(hostOf(member), (counts.get(hostOf(member)) ?? 0) + 1);
    }
    for (const host of [2, 3, 4, 5]) assert.ok(Math.abs((counts.get(host) ?? 0) - 2500) < 250, `${[...counts]}`);
  });
});

const HASHES: readonly SchedulerName[] = ['sh', 'mh'];

for (const name of HASHES) {
  describe(name, () => {
    const answers = (weights: Weights, seed: number): number[] => {
      const balancer = new Balancer(name, weights, { seed });
      return Array.from({ length: 5000 }, (_, index) => hostOf(balancer.connect(clientOf(index))));
    };

    test('two proxies, and one after a restart, agree on every client, whatever the order of endpoints', () => {
      for (const weights of [equal(10), ONE_TO_THREE]) {
        const backwards = new Map([...weights].toReversed());
        assert.deepEqual(answers(weights, 1), answers(backwards, 2));
      }
    });

    test('a client gets the same endpoint again, whatever others do', () => {
      const balancer = new Balancer(name, equal(10));
      const first = balancer.connect('192.0.2.7');
      balancer.held(100);
      assert.equal(balancer.connect('192.0.2.7'), first);
      assert.equal(balancer.connect('::ffff:192.0.2.7'), first);
    });

    test('shares are in proportion to weights', () => {
      assertShares(new Balancer(name, equal(10)), equal(10), { within: 0.1 });
      assertShares(new Balancer(name, ONE_TO_THREE), ONE_TO_THREE);
    });

    test('the clients of an endpoint that refuses spread over all others', () => {
      const balancer = new Balancer(name, equal(5));
      const counts = new Map<number, number>();
      for (let index = 0; index < 20_000; index++) {
        const pick = balancer.picker.pick(clientOf(index), 0);
        if (hostOf(pick.next() as Member) !== 1) continue;
        const next = hostOf(pick.next() as Member);
        counts.set(next, (counts.get(next) ?? 0) + 1);
      }
      for (const host of [2, 3, 4, 5]) assert.ok(Math.abs((counts.get(host) ?? 0) - 1000) < 250, `${[...counts]}`);
    });
  });
}

describe('mh', () => {
  const clients = Array.from({ length: 10_000 }, (_, index) => clientOf(index * 7));

  function moved(before: Weights, after: Weights): number {
    const [one, other] = [new Balancer('mh', before), new Balancer('mh', after, { seed: 2 })];
    return clients.filter((client) => hostOf(one.connect(client)) !== hostOf(other.connect(client))).length;
  }

  test('losing any one of ten endpoints moves fewer than 15 % of clients', () => {
    for (let lost = 1; lost <= 10; lost++) {
      const rest = new Map([...equal(10)].filter(([host]) => host !== lost));
      const count = moved(equal(10), rest);
      assert.ok(count >= 0.08 * clients.length && count < 0.15 * clients.length, `without ${lost}: ${count}`);
    }
  });

  test('a table that was dropped for others is made again, the same', () => {
    const tables = new MaglevTables(20_000);
    const first = tables.keep(new Uint16Array(4093));
    tables.keep(new Uint16Array(4093));
    assert.ok(first.entries !== undefined);
    tables.keep(new Uint16Array(4093));
    assert.equal(first.entries, undefined, 'three do not fit');
    tables.drop(first);
    tables.keep(new Uint16Array(1000));
  });
});

test('fo: the highest weight gets all, then the next', () => {
  const weights = new Map([
    [1, 5],
    [2, 9],
    [3, 9],
    [4, 1],
  ]);
  const balancer = new Balancer('fo', weights, { seed: 4 });
  assert.deepEqual([...balancer.held(100)], [[2, 100]]);
  const pick = balancer.picker.pick('192.0.2.1', 0);
  assert.deepEqual(
    Array.from({ length: 4 }, () => hostOf(pick.next() as Member)),
    [2, 3, 1, 4],
  );
  weights.delete(2);
  balancer.update(weights);
  assert.deepEqual([...balancer.held(100)], [[3, 100]]);
});

test('a new weight takes effect at once, and round robin goes on', () => {
  const turns = new Balancer('rr', equal(3));
  const first = [turns.connect(), turns.connect()];
  turns.update(
    new Map([
      [1, 2],
      [2, 3],
      [3, 4],
    ]),
  );
  assert.ok(!first.includes(turns.connect()), 'the third turn');
  const balancer = new Balancer('wrr', equal(2));
  balancer.shares(3);
  balancer.update(ONE_TO_THREE);
  assert.deepEqual(
    [...balancer.shares(400)],
    [
      [1, 100],
      [2, 300],
    ],
  );
});
