import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SCHEDULERS } from '../../../src/model/scheduler.ts';
import type { Member } from '../../../src/services/member.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { Balancer, clientOf, equal, hostOf, type Weights } from './balancer.ts';

function allTried(balancer: Balancer, client: string): number[] {
  const pick = balancer.picker.pick(client, balancer.nowMs);
  const hosts: number[] = [];
  for (let next = pick.next(); next !== undefined; next = pick.next()) hosts.push(hostOf(next));
  return hosts;
}

for (const name of SCHEDULERS) {
  describe(name, () => {
    test('without endpoints it gives none', () => {
      const balancer = new Balancer(name, new Map());
      assert.equal(balancer.picker.peek('192.0.2.1', 0), undefined);
      assert.deepEqual(allTried(balancer, '192.0.2.1'), []);
    });

    test('a look ahead is true and changes nothing, whatever happened before', () => {
      const balancer = new Balancer(name, new Map([1, 2, 3, 4, 5].map((host) => [host, host])), { slowStartMs: 1000 });
      const random = seededRandom(3);
      const open: Member[] = [];
      for (let step = 0; step < 500; step++) {
        balancer.nowMs += 10 * random();
        const client = clientOf(step);
        const expected = balancer.picker.peek(client, balancer.nowMs);
        assert.equal(balancer.picker.peek(client, balancer.nowMs), expected);
        const member = balancer.connect(client);
        assert.equal(member, expected, `step ${step}`);
        open.push(member);
        if (random() < 0.6) open.splice(Math.floor(random() * open.length), 1)[0]?.released();
      }
    });

    test('every endpoint is tried before any is tried again', () => {
      for (const count of [1, 2, 5, 40]) {
        const balancer = new Balancer(name, new Map([...equal(count).keys()].map((host) => [host, 1 + (host % 3)])));
        for (let index = 0; index < 20; index++) {
          const tried = allTried(balancer, clientOf(index));
          assert.equal(new Set(tried.slice(0, count)).size, count, `${tried}`);
          assert.equal(tried.length, Math.max(4, count));
        }
      }
    });

    test('any sequence of updates, connections and ends keeps to the set', () => {
      for (let seed = 1; seed <= 60; seed++) {
        const random = seededRandom(seed);
        const draw = (below: number): number => Math.floor(random() * below);
        const some = (): Weights => new Map(Array.from({ length: draw(8) }, () => [1 + draw(9), 1 + draw(3)]));
        let weights = some();
        const balancer = new Balancer(name, weights, { seed, slowStartMs: draw(2) * 500 });
        const open: Member[] = [];
        for (let step = 0; step < 80; step++) {
          balancer.nowMs += draw(100);
          if (draw(5) === 0) {
            weights = some();
            balancer.update(weights);
          }
          const member = balancer.picker.pick(clientOf(draw(100)), balancer.nowMs).next();
          assert.equal(member !== undefined, weights.size > 0);
          if (member !== undefined) {
            assert.ok(weights.has(hostOf(member)), `seed ${seed}, step ${step}`);
            assert.equal(member.weight, weights.get(hostOf(member)));
            member.taken();
            open.push(member);
          }
          if (draw(2) === 0) open.splice(draw(open.length), 1)[0]?.released();
        }
      }
    });

    test('what it remembers continues in another process', () => {
      const weights: Weights = new Map([1, 2, 3, 4, 5].map((host) => [host, 1 + (host % 3)]));
      const before = new Balancer(name, weights, { seed: 1, slowStartMs: 5000 });
      before.nowMs = 1000;
      before.update(new Map([...weights, [6, 2]]));
      const members = new Map<number, Member>();
      for (let index = 0; index < 7; index++) members.set(index, before.connect(clientOf(index)));
      const record = JSON.parse(JSON.stringify(before.picker.record(2000)));

      // It has another clock, another shuffle, and the same connections.
      const after = new Balancer(name, new Map(), { seed: 9, slowStartMs: 5000 });
      after.nowMs = 71_000;
      const { endpoints: _, ...rest } = before.backends(weights);
      after.picker.update({ ...rest, endpoints: record.order }, after.nowMs);
      after.picker.restore(record, after.nowMs);
      for (const { name: of, open } of members.values()) {
        const same = after.picker.pool.find(of);
        while (same !== undefined && same.open < open) same.taken();
      }
      before.nowMs = 2000;
      assert.deepEqual(
        after.picker.pool.members.map((each) => [each.name, each.weight, each.open, after.nowMs - each.sinceMs]),
        before.picker.pool.members.map((each) => [each.name, each.weight, each.open, before.nowMs - each.sinceMs]),
      );
      if (name === 'random' || name === 'twos') return;
      for (let index = 0; index < 50; index++) {
        assert.equal(after.connect(clientOf(index)).name, before.connect(clientOf(index)).name, `connection ${index}`);
      }
    });

    test('a Service may change to it and away from it', () => {
      const balancer = new Balancer(name, equal(3));
      const { scheduler: _, ...plain } = balancer.backends(equal(3));
      const member = balancer.connect();
      balancer.picker.update(plain, 0);
      const turns = [balancer.connect(), balancer.connect(), balancer.connect()];
      assert.equal(new Set(turns).size, 3, 'strict turns');
      balancer.update(equal(3));
      member.released();
      assert.equal(balancer.picker.peek('192.0.2.1', 0), balancer.connect());
    });
  });
}
