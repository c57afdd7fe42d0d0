import assert from 'node:assert/strict';
import { test } from 'node:test';
import { selfTimes } from '../../bench/cpu-profile.ts';

test('self times add up by function, the longest first, without idle time', () => {
  const frame = (functionName: string, url = '') => ({ functionName, url, lineNumber: 9 });
  const profile = {
    nodes: [
      { id: 1, callFrame: frame('(idle)') },
      { id: 2, callFrame: frame('copy', 'file:///x/src/worker/a.ts') },
      { id: 3, callFrame: frame('', 'file:///x/src/worker/a.ts') },
      // The same function, called from elsewhere.
      { id: 4, callFrame: frame('copy', 'file:///x/src/worker/a.ts') },
    ],
    samples: [1, 2, 3, 4, 1],
    timeDeltas: [500, 10_000, 2_000, 1_000, 4_000],
  };
  assert.deepEqual(selfTimes(profile), {
    busyMs: 7,
    functions: [
      { name: 'copy  worker/a.ts:10', ms: 6 },
      { name: '(anonymous)  worker/a.ts:10', ms: 1 },
    ],
  });
});
