import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission } from '../../../../src/engine/fast/worker/admission.ts';
import { Descriptors } from '../../../../src/engine/fast/worker/descriptors.ts';
import type { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { Holding, holdingCells } from '../../../../src/engine/holdings.ts';

/** Of 1,000 descriptors, 100 of them reserved, 20 are of parked sockets. */
function rig() {
  const status = new SharedArrayBuffer(STATUS_WORDS * 4);
  const descriptors = new Descriptors({ total: 1000, reserve: 100 }, status, 0);
  const parked = {
    size: 20,
    closeAll: () => {
      const { size } = parked;
      parked.size = 0;
      descriptors.add(-size);
      return size > 0;
    },
  };
  descriptors.add(parked.size);
  const admission = new Admission({} as EventLoop, descriptors, [parked]);
  const namespace = (held: number): Holding => {
    const holding = new Holding(holdingCells(1), 0);
    holding.add(held);
    descriptors.add(held);
    return holding;
  };
  return { admission, parked, namespace };
}

test('a namespace that is beyond its share closes no parked sockets, which others use', () => {
  const { admission, parked, namespace } = rig();
  const large = namespace(780);
  assert.equal(admission.admits(large), false);
  assert.equal(admission.admitsFlow(large), false);
  assert.equal(parked.size, 20);
  assert.equal(admission.admits(namespace(0)), true);
  assert.equal(parked.size, 20);
});

test('parked sockets are closed where that lets one more client in', () => {
  const { admission, parked, namespace } = rig();
  assert.equal(admission.admits(namespace(710)), true);
  assert.equal(parked.size, 0);
});
