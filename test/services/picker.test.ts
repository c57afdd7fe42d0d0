import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { namedEndpoint } from '../../src/model/endpoint.ts';
import { SCHEDULERS } from '../../src/model/scheduler.ts';
import { dialTimeoutMs, Picker } from '../../src/services/picker.ts';
import { MaglevTables } from '../../src/services/schedulers/maglev-tables.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { allHosts, backends, create, host, NO_SHUFFLE, remembering } from './backends.ts';

function picker(hosts: readonly number[], timeoutSeconds?: number, affinityMaxClients = 100): Picker {
  const made = new Picker({
    create,
    random: NO_SHUFFLE,
    affinity: remembering(affinityMaxClients),
    maglevTables: new MaglevTables(),
  });
  made.update(backends(hosts, timeoutSeconds), 0);
  return made;
}

/** The first candidate of a new pick, taken as the one that answers. */
function connect(from: Picker, client = '192.0.2.1', nowMs = 0): number | undefined {
  return host(from.pick(client, nowMs));
}

describe('turns', () => {
  test('without endpoints there is no candidate', () => {
    assert.deepEqual(allHosts(picker([]).pick('c', 0)), []);
    assert.deepEqual(
      allHosts(
        new Picker({ create, random: NO_SHUFFLE, affinity: remembering(1), maglevTables: new MaglevTables() }).pick(
          'c',
          0,
        ),
      ),
      [],
    );
  });

  test('an update says whether the set of endpoints changed', () => {
    const p = picker([1, 2]);
    assert.equal(p.update(backends([2, 1]), 0).kind, 'none');
    assert.equal(p.update(backends([2, 1], 10), 0).kind, 'none');
    assert.equal(p.update(backends([2]), 0).kind, 'set');
  });
});

describe('the set of endpoints', () => {
  const round = (p: Picker) => [connect(p), connect(p), connect(p), connect(p)];

  test('is shuffled evenly', () => {
    const counts = new Map<string, number>();
    const random = seededRandom(7);
    for (let i = 0; i < 6000; i++) {
      const p = new Picker({ create, random, affinity: remembering(1), maglevTables: new MaglevTables() });
      p.update(backends([1, 2, 3]), 0);
      const order = round(p).join();
      counts.set(order, (counts.get(order) ?? 0) + 1);
    }
    assert.equal(counts.size, 6, 'every order occurs');
    for (const [order, count] of counts) assert.ok(count > 850 && count < 1150, `${order}: ${count} of 6000`);
  });

  test('is the same in another order, with duplicates or as new objects: turns go on', () => {
    const p = picker([1, 1, 2, 3]);
    assert.equal(connect(p), 1);
    assert.equal(p.update(backends([3, 1, 1, 2, 3]), 0).kind, 'none');
    assert.deepEqual(round(p), [2, 3, 1, 2]);
  });

  test('that changed is shuffled again, and turns begin again', () => {
    let draws = 0;
    const random = () => {
      draws++;
      return NO_SHUFFLE();
    };
    const p = new Picker({ create, random, affinity: remembering(1), maglevTables: new MaglevTables() });
    p.update(backends([1, 2, 3]), 0);
    connect(p);
    assert.equal(p.update(backends([1, 2, 4]), 0).kind, 'set', 'as many as before, yet another set');
    assert.equal(draws, 4);
    assert.deepEqual(round(p), [1, 2, 4, 1]);
    const { endpoints, affinity } = backends([1]);
    p.update({ endpoints, affinity }, 0);
    assert.equal(
      p.update({ endpoints: endpoints.map(({ address }) => namedEndpoint(address, 81)), affinity }, 0).kind,
      'set',
    );
  });
});

describe('retry', () => {
  test('tries have 250 ms, 500 ms, 1 s, and then 2 s each', () => {
    assert.deepEqual([0, 1, 2, 3, 4, 99].map(dialTimeoutMs), [250, 500, 1_000, 2_000, 2_000, 2_000]);
  });

  test('every endpoint is tried once; fewer than four are repeated until four tries', () => {
    assert.deepEqual(allHosts(picker([1]).pick('c', 0)), [1, 1, 1, 1]);
    assert.deepEqual(allHosts(picker([1, 2]).pick('c', 0)), [1, 2, 1, 2]);
    assert.deepEqual(allHosts(picker([1, 2, 3]).pick('c', 0)), [1, 2, 3, 1]);
    assert.deepEqual(allHosts(picker([1, 2, 3, 4]).pick('c', 0)), [1, 2, 3, 4]);
    assert.deepEqual(allHosts(picker([1, 2, 3, 4, 5]).pick('c', 0)), [1, 2, 3, 4, 5]);
  });

  test('connections that a dead endpoint refuses are spread evenly over the others', () => {
    const p = picker([1, 2, 3, 4]);
    const answered = new Map<number, number>();
    for (let i = 0; i < 300; i++) {
      const pick = p.pick('c', 0);
      let chosen = host(pick);
      while (chosen === 1) chosen = host(pick);
      answered.set(chosen ?? 0, (answered.get(chosen ?? 0) ?? 0) + 1);
    }
    assert.deepEqual(answered, new Map([2, 3, 4].map((alive) => [alive, 100])));
  });
});

describe('peeking', () => {
  const peeked = (p: Picker, client = 'a', nowMs = 0) => {
    const next = p.peek(client, nowMs);
    return next && Number(next.endpoint.address.split('.')[3]);
  };

  test('returns the next endpoint without taking a turn', () => {
    const p = picker([1, 2, 3]);
    for (const each of [1, 2, 3, 1]) {
      assert.deepEqual([peeked(p), peeked(p, 'b')], [each, each]);
      assert.equal(connect(p), each);
    }
    assert.equal(peeked(picker([])), undefined);
  });

  test('finds the endpoint of a client, and neither ties the client to one nor prolongs its time', () => {
    const p = picker([1, 2, 3], 10);
    assert.equal(connect(p, '192.0.2.1', 0), 1);
    assert.deepEqual([peeked(p, '192.0.2.1', 9_999), peeked(p, '::ffff:192.0.2.1', 9_999)], [1, 1]);
    assert.equal(peeked(p, '192.0.2.1', 10_000), 2, 'asking has not made its time begin anew');
    assert.equal(peeked(p, 'b', 10_000), 2);
    assert.equal(connect(p, 'c', 10_000), 2);
    assert.equal(peeked(p, 'b', 10_000), 3, 'asking has not tied it to the second');
    p.update(backends([1, 3], 10), 0);
    assert.equal(peeked(p, 'c', 10_000), 1, 'its endpoint has left');
  });
});

describe('ClientIP affinity', () => {
  test('a client keeps its endpoint, and others take turns', () => {
    const p = picker([1, 2, 3], 60);
    assert.deepEqual([connect(p, 'a'), connect(p, 'b'), connect(p, 'a'), connect(p, 'b')], [1, 2, 1, 2]);
    assert.equal(connect(p, 'c'), 3, 'a client that keeps its endpoint takes no turn');
  });

  test('an IPv4-mapped address is the IPv4 client', () => {
    const p = picker([1, 2, 3], 60);
    assert.equal(connect(p, '::ffff:192.0.2.1'), 1);
    assert.equal(connect(p, '192.0.2.1'), 1);
    assert.equal(connect(p, '::ffff:192.0.2.1'), 1);
  });

  test('every pick starts the timeout anew', () => {
    const p = picker([1, 2, 3], 10);
    assert.equal(connect(p, 'a', 0), 1);
    assert.equal(connect(p, 'a', 9_000), 1);
    assert.equal(connect(p, 'a', 18_999), 1);
    assert.equal(connect(p, 'a', 28_999), 2);
  });

  test('a changed timeout holds for known clients', () => {
    const p = picker([1, 2, 3], 10);
    connect(p, 'a', 0);
    p.update(backends([1, 2, 3], 100), 0);
    assert.equal(connect(p, 'a', 50_000), 1);
    p.update(backends([1, 2, 3], 5), 0);
    assert.equal(connect(p, 'a', 55_000), 2);
  });

  test('switching it off forgets every client', () => {
    const p = picker([1, 2, 3], 60);
    assert.equal(connect(p, 'a'), 1);
    p.update(backends([1, 2, 3]), 0);
    assert.equal(connect(p, 'a'), 2);
    p.update(backends([1, 2, 3], 60), 0);
    assert.equal(connect(p, 'a'), 3);
    assert.equal(connect(p, 'a'), 3);
  });

  test('connections of one client whose endpoint fails move to the same other endpoint', () => {
    const p = picker([1, 2, 3, 4], 60);
    const picks = [p.pick('a', 0), p.pick('a', 0), p.pick('a', 0)];
    assert.deepEqual(picks.map(host), [1, 1, 1]);
    connect(p, 'somebody else');
    assert.deepEqual(picks.map(host), [3, 3, 3]);
  });

  test('an endpoint that comes back has no clients', () => {
    const p = picker([1, 2], 60);
    assert.deepEqual([connect(p, 'a'), connect(p, 'b')], [1, 2]);
    p.update(backends([1], 60), 0);
    p.update(backends([1, 2], 60), 0);
    assert.deepEqual([connect(p, 'a'), connect(p, 'b')], [1, 1], 'b takes a turn: the first of the new round');
    p.update(backends([], 60), 0);
    p.update(backends([1, 2], 60), 0);
    assert.equal(connect(p, 'b'), 1);
    assert.equal(connect(p, 'a'), 2, 'all left once: nobody is pinned');
  });

  test('clients beyond the bound are forgotten, the longest silent first', () => {
    const p = picker([1, 2, 3], 60, 2);
    assert.deepEqual([connect(p, 'a'), connect(p, 'b'), connect(p, 'a'), connect(p, 'c')], [1, 2, 1, 3]);
    assert.equal(connect(p, 'a'), 1);
    assert.equal(connect(p, 'b'), 1, 'forgotten, so it takes its turn');
  });

  test('an endpoint reported dead loses that client only while the client still has it', () => {
    const p = picker([1, 2, 3], 60);
    const dead = p.pick('a', 0).next();
    assert.ok(dead);
    p.forget('::ffff:a', dead);
    assert.equal(connect(p, 'a'), 1, 'no address: not unmapped, so nothing was forgotten');
    p.forget('a', dead);
    assert.equal(connect(p, 'a'), 2);
    p.forget('a', dead);
    assert.equal(connect(p, 'a'), 2, 'it had moved on');
  });

  test('an endpoint is known while it is in the set', () => {
    const p = picker([1, 2], 60);
    const one = p.pick('a', 0).next();
    assert.ok(one && one.position >= 0);
    p.update(backends([2, 1], 60), 0);
    assert.ok(one.position >= 0);
    p.update(backends([2], 60), 0);
    assert.ok(one.position < 0);
  });
});

describe('continuing in another process', () => {
  test('turns, affinity and its ages continue, in the old order', () => {
    const before = picker([1, 2, 3], 60);
    assert.deepEqual([connect(before, 'a', 0), connect(before, 'b', 30_000)], [1, 2]);
    const record = before.record(40_000);
    // As by JSON, and with a clock of its own.
    const after = new Picker({ create, random: () => 0, affinity: remembering(100), maglevTables: new MaglevTables() });
    after.update(backends([3, 2, 1], 60), 0);
    after.restore(JSON.parse(JSON.stringify(record)), 1000);
    assert.equal(after.update(backends([1, 2, 3], 60), 0).kind, 'none', 'it is the same set');
    assert.deepEqual([connect(after, 'b', 1000), connect(after, 'new', 1000)], [2, 3]);
    assert.equal(connect(after, 'a', 1000 + 19_999), 1, 'its minute is not over');
    const later = new Picker({ create, random: () => 0, affinity: remembering(100), maglevTables: new MaglevTables() });
    later.update(backends([3, 2, 1], 60), 0);
    later.restore(record, 1000);
    assert.equal(connect(later, 'a', 1000 + 20_000), 3, 'its minute began before the change');
  });

  test('clients of removed endpoints are not recorded', () => {
    const before = picker([1, 2], 60);
    connect(before, 'a');
    connect(before, 'b');
    before.update(backends([2], 60), 0);
    assert.deepEqual(
      before.record(0).affinity.map(({ client }) => client),
      ['b'],
    );
  });
});

describe('a limit of connections', () => {
  const limited = (hosts: readonly number[], maxConnections: number, timeoutSeconds?: number) => {
    const freed: string[] = [];
    const p = new Picker({
      create,
      random: NO_SHUFFLE,
      affinity: remembering(100),
      maglevTables: new MaglevTables(),
      ejection: { ejectAfter: 1, ejectTimeMs: 1000 },
      onFree: ({ name }) => freed.push(name),
    });
    p.update({ ...backends(hosts, timeoutSeconds), maxConnections }, 0);
    return { p, freed };
  };
  const take = (p: Picker, client = '192.0.2.1', nowMs = 0) => {
    const member = p.pick(client, nowMs).next();
    member?.taken();
    return member;
  };

  for (const scheduler of SCHEDULERS) {
    test(`leaves full endpoints out, and tells when one is free again: ${scheduler}`, () => {
      const { p, freed } = limited([1, 2, 3], 2);
      p.update({ ...backends([1, 2, 3]), scheduler, maxConnections: 2 }, 0);
      const taken = Array.from({ length: 6 }, (_, i) => take(p, `192.0.2.${i}`));
      assert.deepEqual(
        Object.values(Object.groupBy(taken, (member) => member?.name ?? '')).map((each) => each?.length),
        [...[2, 2, 2]],
      );
      assert.deepEqual([take(p), p.peek('192.0.2.9', 0)], [undefined, undefined]);
      freed.length = 0;
      taken[3]?.released();
      assert.deepEqual(freed, [taken[3]?.name]);
      assert.equal(take(p), taken[3]);
    });
  }

  test('holds for the retries of a pick', () => {
    const { p } = limited([1, 2, 3], 1);
    take(p);
    assert.deepEqual(allHosts(p.pick('192.0.2.1', 0)), [2, 3, 2, 3]);
  });

  test('holds for the endpoint of a client with affinity, which gets no other', () => {
    const { p } = limited([1, 2], 1, 60);
    const mine = take(p);
    assert.deepEqual([take(p), p.peek('192.0.2.1', 0)], [undefined, undefined]);
    assert.equal(p.affine('192.0.2.1', 0), mine);
    assert.notEqual(take(p, '192.0.2.2'), mine);
    mine?.released();
    assert.equal(take(p), mine);
  });

  test('holds for the trial of an ejected endpoint', () => {
    const { p } = limited([1, 2], 1);
    const one = take(p);
    if (one === undefined) assert.fail();
    assert.ok(p.failed(one, 'refused', 0));
    assert.equal(take(p, 'c', 5000)?.name === one.name, false);
    assert.equal(take(p, 'c', 5000), undefined);
    one.released();
    assert.equal(take(p, 'c', 5000), one);
  });

  test('may change, and go', () => {
    const { p } = limited([1], 1);
    take(p);
    p.update({ ...backends([1]), maxConnections: 2 }, 0);
    assert.notEqual(take(p), undefined);
    assert.equal(take(p), undefined);
    p.update(backends([1]), 0);
    assert.notEqual(take(p), undefined);
  });
});
