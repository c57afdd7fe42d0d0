import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission } from '../../../src/engine/core/admission.ts';
import type { Loop } from '../../../src/engine/core/deadlines.ts';
import { createShares, Share, shareTable } from '../../../src/engine/core/shares.ts';
import { OPTIONS } from '../fast/rig.ts';

/** Of 1,000 descriptors, 20 are of parked sockets, 125 are reserved, and as many are not for clients. */
function rig() {
  const shares = createShares({ taken: shareTable(1), row: 0, descriptorLimit: 1000, options: OPTIONS });
  const { descriptors } = shares;
  const parked = {
    size: 20,
    closeAll: () => {
      const { size } = parked;
      parked.size = 0;
      descriptors.give(size);
      return size > 0;
    },
  };
  descriptors.take(parked.size);
  const admission = new Admission({ loop: {} as Loop, shares, parked: [parked] });
  const namespace = (held: number): Share => {
    const share = new Share(shareTable(1), 0);
    descriptors.take(held, share);
    return share;
  };
  return { admission, parked, namespace };
}

test('a namespace that is beyond its share closes no parked sockets, which others use', () => {
  const { admission, parked, namespace } = rig();
  const large = namespace(620);
  assert.equal(admission.admits(large), false);
  assert.equal(admission.admitsFlow(large), false);
  assert.equal(parked.size, 20);
  assert.equal(admission.admits(namespace(0)), true);
  assert.equal(parked.size, 20);
});

test('parked sockets are closed where that lets one more client in', () => {
  const { admission, parked, namespace } = rig();
  assert.equal(admission.admits(namespace(590)), true);
  assert.equal(parked.size, 0);
});
