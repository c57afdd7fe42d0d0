import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flowLimit } from '../../src/engine/flow-limits.ts';

const LIMITS = { udpMaxFlows: 100, udpMaxFlowsPerService: 50 };

test('a new flow is kept out by the bound of its port, of all, or of its namespace', () => {
  const limit = (ofPort: number, ofNamespace: number, all: number) => flowLimit(LIMITS, { ofPort, ofNamespace, all });
  assert.equal(limit(49, 79, 80), undefined);
  assert.equal(limit(50, 50, 50), 'flows-per-service');
  assert.equal(limit(0, 0, 100), 'flows-total');
  assert.equal(limit(40, 80, 80), 'flows-per-namespace');
  assert.equal(limit(0, 0, 80), undefined);
  assert.equal(limit(0, 0, 99), undefined);
  assert.equal(limit(4, 4, 99), 'flows-per-namespace');
});
