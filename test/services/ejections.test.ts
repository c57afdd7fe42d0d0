import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Backends, DialFailure } from '../../src/model/data-plane.ts';
import type { Member } from '../../src/services/member.ts';
import { Picker } from '../../src/services/picker.ts';
import { MaglevTables } from '../../src/services/schedulers/maglev-tables.ts';
import { backends, create, endpoint, NO_SHUFFLE, remembering } from './backends.ts';

const TIME_MS = 5000;

function picker(
  hosts: readonly number[],
  { after = 3, affinitySeconds }: { after?: number; affinitySeconds?: number } = {},
) {
  const made = new Picker({
    create,
    random: NO_SHUFFLE,
    affinity: remembering(100),
    maglevTables: new MaglevTables(),
    ejection: { ejectAfter: after, ejectTimeMs: TIME_MS },
  });
  made.update(backends(hosts, affinitySeconds), 0);
  return made;
}

function member(from: Picker, host: number): Member {
  return from.pool.find(`10.0.0.${host}:80`) ?? assert.fail(`${host} is not there`);
}

const hostOf = (picked: Member | undefined) => picked && Number(picked.name.split(/[.:]/)[3]);

/** The first candidate. */
function first(from: Picker, nowMs: number, client = '192.0.2.1') {
  return hostOf(from.pick(client, nowMs).next());
}

function candidates(from: Picker, nowMs: number): (number | undefined)[] {
  const pick = from.pick('192.0.2.1', nowMs);
  const hosts: (number | undefined)[] = [];
  for (let next = pick.next(); next !== undefined; next = pick.next()) hosts.push(hostOf(next));
  return hosts;
}

function fail(from: Picker, host: number, times = 3, nowMs = 0, reason: DialFailure = 'refused'): boolean {
  let isEjected = false;
  for (let i = 0; i < times; i++) isEjected = from.failed(member(from, host), reason, nowMs);
  return isEjected;
}

describe('a doubtful endpoint', () => {
  const doubting = (hosts: readonly number[], doubted: readonly number[]): Backends => {
    const { endpoints, ...rest } = backends(hosts);
    const isDoubted = (name: string) => doubted.some((host) => name === endpoint(host).name);
    return {
      ...rest,
      endpoints: endpoints.map((each) => (isDoubted(each.name) ? { ...each, isDoubtful: true } : each)),
    };
  };

  test('is tried when no other has answered, and its first answer readmits it', () => {
    const p = picker([]);
    p.update(doubting([1, 2, 3], [1]), 0);
    assert.deepEqual(Array.from({ length: 6 }, () => first(p, 0)).includes(1), false);
    assert.equal(candidates(p, 0)[2], 1);
    assert.equal(p.answered(member(p, 1), 0), true);
    p.update(doubting([1, 2, 3], [1]), 0);
    assert.equal(p.ejected, 0, 'it has answered since');
  });

  test('gets one client when its time is over', () => {
    const p = picker([]);
    p.update(doubting([1, 2], [1]), 0);
    assert.deepEqual([first(p, TIME_MS), first(p, TIME_MS)], [1, 2]);
  });

  test('is none when the source says that it is there, and where none is ever ejected', () => {
    const p = picker([]);
    p.update(doubting([1, 2], [1, 2]), 0);
    assert.equal(p.ejected, 2);
    p.update(doubting([1, 2], [2]), 0);
    assert.deepEqual([p.isEjected(member(p, 1)), p.isEjected(member(p, 2))], [false, true]);
    const never = picker([], { after: 0 });
    never.update(doubting([1, 2], [1, 2]), 0);
    assert.equal(never.ejected, 0);
  });
});

describe('an endpoint that fails', () => {
  test('is ejected by as many failures in a row as are allowed, and by none before', () => {
    const p = picker([1, 2, 3]);
    assert.equal(fail(p, 2, 2), false);
    assert.equal(p.ejected, 0);
    assert.equal(fail(p, 2, 1), true);
    assert.equal(p.ejected, 1);
    assert.equal(fail(p, 2, 1), false, 'it is ejected once');
    assert.ok(p.isEjected(member(p, 2)));
  });

  test('is not ejected when an answer comes in between, or when the failures are this node’s', () => {
    const p = picker([1, 2, 3]);
    fail(p, 2, 2);
    assert.equal(p.answered(member(p, 2), 0), false);
    assert.equal(fail(p, 2, 2, 250), false);
    assert.equal(fail(p, 2, 10, 250, 'other'), false);
  });

  test('is not ejected by a client that a policy keeps out, while it answers others', () => {
    const p = picker([1, 2, 3]);
    for (let nowMs = 0; nowMs < 10_000; nowMs += 200) {
      p.answered(member(p, 2), nowMs);
      assert.equal(fail(p, 2, 10, nowMs + 199, 'timeout'), false);
    }
    assert.equal(fail(p, 2, 3, 9800 + 250, 'timeout'), true, 'nobody was answered while these dials were silent');
  });

  test('is never ejected where that is turned off', () => {
    const p = picker([1, 2, 3], { after: 0 });
    assert.equal(fail(p, 2, 100), false);
    assert.deepEqual(candidates(p, 0), [1, 2, 3, 1]);
  });

  test('is tried last, and not left out', () => {
    const p = picker([1, 2, 3]);
    fail(p, 1);
    assert.deepEqual(candidates(p, 0), [2, 3, 1, 2]);
  });

  test('leaves its turns to all others evenly', () => {
    const p = picker([1, 2, 3, 4]);
    fail(p, 2);
    const hosts = Array.from({ length: 9 }, () => first(p, 0));
    assert.deepEqual(hosts, [1, 3, 4, 1, 3, 4, 1, 3, 4]);
  });

  test('that leaves the set and comes back is not ejected', () => {
    const p = picker([1, 2, 3]);
    fail(p, 2);
    p.update(backends([1, 3]), 0);
    assert.equal(p.ejected, 0);
    p.update(backends([1, 2, 3]), 0);
    assert.equal(p.ejected, 0);
    assert.equal(p.isEjected(member(p, 2)), false);
  });
});

describe('a set of which many endpoints fail', () => {
  test('has at most half of its endpoints ejected for silence while none answers, and any number for refusals', () => {
    for (const reason of ['timeout', 'unreachable'] as const) {
      const p = picker([1, 2, 3, 4, 5]);
      for (const host of [1, 2, 3]) fail(p, host, 3, 0, reason);
      assert.equal(p.ejected, 2);
    }
    const p = picker([1, 2, 3, 4, 5]);
    for (const host of [1, 2, 3, 4, 5]) fail(p, host);
    assert.equal(p.ejected, 5);
  });

  test('has all ejected that were silent before, during and after answers of others', () => {
    const p = picker([1, 2, 3]);
    for (const host of [1, 2]) fail(p, host, 1, 250, 'timeout');
    p.answered(member(p, 3), 250);
    for (const host of [1, 2]) assert.equal(fail(p, host, 1, 501, 'timeout'), false);
    assert.equal(p.failed(member(p, 1), 'timeout', 752, 250), true);
    assert.equal(p.failed(member(p, 2), 'timeout', 753, 253), false, 'its dial began before that was known');
    assert.equal(p.failed(member(p, 2), 'timeout', 1003, 250), true);
    assert.deepEqual(candidates(p, 1004), [3, 1, 2, 3]);
    assert.equal(fail(p, 3, 10, 2000, 'timeout'), false, 'nobody answers any more');
  });

  test('does not lose more than half in an outage of this node’s network, nor when the network comes back', () => {
    const p = picker([1, 2, 3, 4]);
    for (const host of [1, 2, 3, 4]) p.answered(member(p, host), 999);
    const dial = (beganMs: number, hosts: readonly number[]) => {
      for (const host of hosts) p.failed(member(p, host), 'timeout', beganMs + 250, 250);
    };
    for (let beganMs = 1000; beganMs <= 2750; beganMs += 10) dial(beganMs, [1, 2, 3, 4]);
    // The first answer comes while dials wait whose first packet was lost.
    p.answered(member(p, 4), 3001);
    for (let beganMs = 2760; beganMs < 3000; beganMs += 10) dial(beganMs, [1, 2, 3]);
    assert.equal(p.ejected, 2);
  });

  test('of one endpoint does not lose it for silence', () => {
    assert.equal(fail(picker([1]), 1, 10, 0, 'timeout'), false);
  });

  test('is as before when all are ejected', () => {
    const p = picker([1, 2, 3]);
    for (const host of [1, 2, 3]) fail(p, host);
    assert.deepEqual(candidates(p, 0), [1, 2, 3, 1]);
    assert.deepEqual(candidates(p, 0), [2, 3, 1, 2]);
  });
});

describe('a trial', () => {
  test('is one client, when the time is over; its answer readmits the endpoint', () => {
    const p = picker([1, 2, 3]);
    fail(p, 2);
    const before = Array.from({ length: 10 }, () => first(p, TIME_MS - 1));
    assert.ok(!before.includes(2), `${before}`);
    assert.equal(hostOf(p.peek('192.0.2.1', TIME_MS)), 2);
    assert.equal(first(p, TIME_MS), 2);
    const meanwhile = Array.from({ length: 10 }, () => first(p, TIME_MS + 250));
    assert.ok(!meanwhile.includes(2), `others do not wait: ${meanwhile}`);
    assert.equal(p.answered(member(p, 2), TIME_MS + 250), true);
    assert.equal(p.ejected, 0);
    const after = Array.from({ length: 3 }, () => first(p, TIME_MS + 250));
    assert.ok(after.includes(2));
  });

  test('that fails ejects the endpoint for twice as long, up to a minute; a readmission begins anew', () => {
    const p = picker([1, 2]);
    fail(p, 2);
    let nowMs = 0;
    for (const ms of [5000, 10_000, 20_000, 40_000, 60_000, 60_000]) {
      assert.notEqual(first(p, nowMs + ms - 1), 2, `not after ${ms - 1} ms`);
      nowMs += ms;
      assert.equal(first(p, nowMs), 2, `after ${ms} ms`);
      assert.equal(p.failed(member(p, 2), 'timeout', nowMs), false, 'that is no further ejection');
    }
    p.answered(member(p, 2), nowMs);
    nowMs += 250;
    fail(p, 2, 3, nowMs);
    assert.notEqual(first(p, nowMs + TIME_MS - 1), 2);
    assert.equal(first(p, nowMs + TIME_MS), 2);
  });

  test('is not counted when it failed for this node: the next client is one, too', () => {
    const p = picker([1, 2]);
    fail(p, 2);
    assert.equal(first(p, TIME_MS), 2);
    p.failed(member(p, 2), 'other', TIME_MS);
    assert.notEqual(first(p, TIME_MS), 2, 'it waits once more');
    assert.equal(first(p, 2 * TIME_MS), 2);
  });

  test('of which nothing comes, such as a UDP question in vain, is repeated after the same time', () => {
    const p = picker([1, 2]);
    fail(p, 2);
    assert.equal(first(p, TIME_MS), 2);
    assert.notEqual(first(p, 2 * TIME_MS - 1), 2);
    assert.equal(first(p, 2 * TIME_MS), 2);
    assert.equal(first(p, 3 * TIME_MS), 2, 'not after twice as long');
  });

  test('is there for one endpoint at a time, however many are ejected', () => {
    const hosts = Array.from({ length: 100 }, (_, i) => i + 1);
    const p = picker(hosts);
    for (const host of hosts.slice(0, 50)) fail(p, host);
    const trials = Array.from({ length: 100 }, () => first(p, TIME_MS)).filter((host = 0) => host <= 50);
    assert.equal(trials.length, 1, `${trials}`);
    p.failed(member(p, trials[0] as number), 'refused', TIME_MS);
    const next = Array.from({ length: 100 }, () => first(p, TIME_MS)).filter((host = 0) => host <= 50);
    assert.equal(next.length, 1);
    assert.notDeepEqual(next, trials);
  });

  test('meets hardly any client: one black hole in ten, and a hundred connections a second', () => {
    const p = picker([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let waited = 0;
    let connections = 0;
    for (let nowMs = 0; nowMs < 120_000; nowMs += 10) {
      connections++;
      const pick = p.pick('192.0.2.1', nowMs);
      for (let tried = pick.next(); tried !== undefined; tried = pick.next()) {
        if (hostOf(tried) !== 7) break;
        waited++;
        p.failed(tried, 'timeout', nowMs);
      }
    }
    assert.equal(waited, 3 + 4, 'until it is ejected, and trials after 5, 15, 35 and 75 seconds');
    assert.ok(waited / connections < 0.001);
  });
});

describe('with ClientIP affinity', () => {
  test('a client of an ejected endpoint moves on, and does not come back', () => {
    const p = picker([1, 2, 3], { affinitySeconds: 600 });
    const before = first(p, 0, '192.0.2.7') as number;
    fail(p, before);
    const after = first(p, 1, '192.0.2.7');
    assert.notEqual(after, before);
    assert.equal(p.answered(member(p, before), 1), true);
    assert.equal(first(p, 2, '192.0.2.7'), after);
  });

  test('a client of another endpoint is no trial', () => {
    const p = picker([1, 2, 3], { affinitySeconds: 600 });
    const mine = first(p, 0, '192.0.2.7') as number;
    fail(p, (mine % 3) + 1);
    assert.equal(first(p, TIME_MS, '192.0.2.7'), mine);
    assert.equal(first(p, TIME_MS, '192.0.2.8'), (mine % 3) + 1);
  });

  test('a client stays where it is when all are ejected', () => {
    const p = picker([1, 2, 3], { affinitySeconds: 600 });
    const mine = first(p, 0, '192.0.2.7');
    for (const host of [1, 2, 3]) fail(p, host);
    assert.equal(first(p, TIME_MS, '192.0.2.7'), mine);
  });
});

test('another process goes on with the ejected endpoints and their times', () => {
  const before = picker([1, 2, 3]);
  fail(before, 2);
  first(before, TIME_MS);
  assert.equal(first(before, TIME_MS), 1);
  before.failed(member(before, 2), 'refused', TIME_MS);
  const nowMs = TIME_MS + 1000;
  const record = before.record(nowMs);
  const after = picker([3, 2, 1]);
  after.restore(structuredClone(record), 0);
  assert.equal(after.ejected, 1);
  assert.notEqual(first(after, 2 * TIME_MS - 1001), 2);
  assert.equal(first(after, 2 * TIME_MS - 1000), 2);
  after.failed(member(after, 2), 'refused', 10_000);
  const twice = 10_000 + 4 * TIME_MS;
  assert.notEqual(first(after, twice - 1), 2, 'the third ejection in a row takes four times as long');
  assert.equal(first(after, twice), 2);
  assert.equal('ejections' in picker([1]).record(0), false);
});
