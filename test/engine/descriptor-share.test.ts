import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DESCRIPTORS_OF, hasShare, planDescriptors } from '../../src/engine/descriptor-share.ts';
import type { ProxiedProtocol } from '../../src/model/service-port.ts';

const LIMIT = 2000;
const plan = planDescriptors(LIMIT);

/** Tenants who take, in turn, as much as they may. What each holds in the end. */
function fill(...tenants: readonly ProxiedProtocol[]): readonly number[] {
  const held = tenants.map(() => ({ total: 0 }));
  const free = () => plan.total - held.reduce((sum, { total }) => sum + total, 0);
  for (let took = true; took; ) {
    took = false;
    for (const [index, protocol] of tenants.entries()) {
      const own = held[index]!;
      if (!hasShare(protocol, plan, free(), own)) continue;
      own.total += DESCRIPTORS_OF[protocol];
      took = true;
    }
  }
  return held.map(({ total }) => total);
}

test('an eighth of few descriptors, or 256 of many, is for the rest of the program, and as much for the reserve', () => {
  assert.deepEqual(plan, { total: 1750, reserve: 250 });
  assert.deepEqual(planDescriptors(1 << 20), { total: (1 << 20) - 256, reserve: 256 });
  const unlimited = planDescriptors(Number.POSITIVE_INFINITY);
  assert.ok(hasShare('TCP', unlimited, unlimited.total, { total: 1e9 }));
});

test('one namespace alone gets four fifths of what is not kept, two get four ninths each', () => {
  assert.deepEqual(fill('TCP'), [1200]);
  assert.deepEqual(fill('TCP', 'TCP'), [668, 666]);
  assert.deepEqual(fill('UDP'), [1200]);
});

test('after any number of large namespaces, of either protocol, a new one finds room', () => {
  const large = fill('TCP', 'UDP', 'TCP', 'UDP', 'TCP', 'TCP', 'UDP', 'TCP');
  const free = plan.total - large.reduce((sum, each) => sum + each, 0);
  assert.ok(hasShare('TCP', plan, free, { total: 0 }), `${free} are free`);
  for (let flows = 0; flows < 50; flows++) assert.ok(hasShare('UDP', plan, free - flows, { total: flows }), `${flows}`);
});

test('what a namespace holds is not looked at while more than half is free', () => {
  const held = {
    get total(): number {
      throw new Error('looked at');
    },
  };
  assert.ok(hasShare('TCP', plan, 1126, held));
  assert.throws(() => hasShare('TCP', plan, 1125, held), /looked at/);
});
