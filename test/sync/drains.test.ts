import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Endpoint, endpointName } from '../../src/model/endpoint.ts';
import { Drains, MAX_DRAINED } from '../../src/sync/drains.ts';
import { address } from '../rules/fixtures.ts';

const ONE: Endpoint = { address: address('10.0.0.1'), port: 80 };
const TWO: Endpoint = { address: address('fd00::1'), port: 80 };

/** What each of two families was told last, and how often. */
function rig() {
  const told = [0, 1].map(() => ({ drained: [] as string[], flushes: 0 }));
  const drains = new Drains(
    told.map((family) => ({
      tracker: {
        setDrained: (endpoints) => {
          family.drained = [...endpoints].map(endpointName);
        },
      },
      controller: {
        trackerChanged: () => {
          family.flushes++;
        },
      },
    })),
  );
  return { drains, told };
}

test('every family is notified once of each drained endpoint', () => {
  const { drains, told } = rig();
  drains.drain(ONE);
  drains.drain({ ...ONE });
  drains.drain(TWO);
  for (const family of told) assert.deepEqual(family, { drained: ['10.0.0.1:80', '[fd00::1]:80'], flushes: 2 });
  assert.deepEqual(drains.list(), [ONE, TWO]);
  assert.ok(drains.has({ ...ONE }) && !drains.has({ ...ONE, port: 81 }));
});

test('the number of drained endpoints is limited; draining one again is accepted', () => {
  const { drains, told } = rig();
  const nth = (n: number): Endpoint => ({ address: address(`11.${n >> 16}.${(n >> 8) & 255}.${n & 255}`), port: 80 });
  drains.replace(Array.from({ length: MAX_DRAINED - 1 }, (_, n) => nth(n)));
  assert.equal(drains.drain(TWO), true);
  assert.equal(drains.drain(ONE), false);
  assert.equal(drains.drain(TWO), true);
  assert.equal(drains.has(ONE), false);
  assert.equal(told[0]?.drained.length, MAX_DRAINED);
  drains.undrain(TWO);
  assert.equal(drains.drain(ONE), true);
});

test('undraining reports whether the endpoint was drained', () => {
  const { drains, told } = rig();
  drains.drain(ONE);
  assert.equal(drains.undrain({ ...ONE, port: 81 }), false);
  assert.equal(drains.undrain({ ...ONE }), true);
  assert.equal(drains.undrain(ONE), false);
  for (const family of told) assert.deepEqual(family, { drained: [], flushes: 2 });
});

test('the drained endpoints of a predecessor replace all others', () => {
  const { drains, told } = rig();
  drains.drain(ONE);
  drains.replace([TWO]);
  for (const { drained } of told) assert.deepEqual(drained, ['[fd00::1]:80']);
  assert.deepEqual(drains.list(), [TWO]);
});
