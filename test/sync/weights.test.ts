import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Endpoint, endpointName } from '../../src/model/endpoint.ts';
import { MAX_WEIGHTS, Weights } from '../../src/sync/weights.ts';
import { address } from '../support/model.ts';

const ONE: Endpoint = { address: address('10.0.0.1'), port: 80 };
const TWO: Endpoint = { address: address('fd00::1'), port: 80 };

/** What each of two families was told last, and how often. */
function rig() {
  const told = [0, 1].map(() => ({ weights: [] as string[], flushes: 0 }));
  const weights = new Weights(
    told.map((family) => ({
      tracker: {
        setWeights: (all) => {
          family.weights = Array.from(all, (each) => `${endpointName(each)} ${each.weight}`);
        },
      },
      controller: {
        trackerChanged: () => {
          family.flushes++;
        },
      },
    })),
  );
  return { weights, told };
}

test('every family is notified once of each weight', () => {
  const { weights, told } = rig();
  weights.set(ONE, 0);
  weights.set({ ...ONE }, 0);
  weights.set(TWO, 5);
  for (const family of told) assert.deepEqual(family, { weights: ['10.0.0.1:80 0', '[fd00::1]:80 5'], flushes: 2 });
  assert.deepEqual(weights.list(), [
    { ...ONE, weight: 0 },
    { ...TWO, weight: 5 },
  ]);
  assert.equal(weights.of({ ...ONE }), 0);
  assert.equal(weights.of({ ...ONE, port: 81 }), undefined);
});

test('the number of weights is limited; one that is set may change', () => {
  const { weights, told } = rig();
  const nth = (n: number): Endpoint => ({ address: address(`11.${n >> 16}.${(n >> 8) & 255}.${n & 255}`), port: 80 });
  weights.replace(Array.from({ length: MAX_WEIGHTS - 1 }, (_, n) => ({ ...nth(n), weight: n % 3 })));
  assert.equal(weights.set(TWO, 0), true);
  assert.equal(weights.set(ONE, 0), false);
  assert.equal(weights.set(TWO, 3), true);
  assert.equal(weights.of(ONE), undefined);
  assert.equal(told[0]?.weights.length, MAX_WEIGHTS);
  weights.set(TWO, undefined);
  assert.equal(weights.set(ONE, 0), true);
});

test('a weight that is taken back is gone, and taking back none is no change', () => {
  const { weights, told } = rig();
  weights.set(ONE, 7);
  weights.set({ ...ONE, port: 81 }, undefined);
  weights.set({ ...ONE }, undefined);
  weights.set(ONE, undefined);
  assert.equal(weights.of(ONE), undefined);
  for (const family of told) assert.deepEqual(family, { weights: [], flushes: 2 });
});

test('the weights of a predecessor replace all others', () => {
  const { weights, told } = rig();
  weights.set(ONE, 0);
  weights.replace([{ ...TWO, weight: 2 }]);
  for (const family of told) assert.deepEqual(family.weights, ['[fd00::1]:80 2']);
  assert.deepEqual(weights.list(), [{ ...TWO, weight: 2 }]);
});

test('an endpoint that is undrained has the weight again that was set before it was drained', () => {
  const { weights } = rig();
  assert.equal(weights.undrain(ONE), false);
  weights.set(ONE, 5);
  assert.equal(weights.undrain(ONE), false, 'it is not drained');
  weights.set(ONE, 0);
  weights.set(ONE, 0);
  const { weights: successor } = rig();
  successor.replace(weights.list());
  for (const each of [weights, successor]) {
    assert.equal(each.undrain(ONE), true);
    assert.equal(each.of(ONE), 5);
  }
  weights.set(TWO, 0);
  assert.equal(weights.undrain(TWO), true);
  assert.equal(weights.of(TWO), undefined);
});
