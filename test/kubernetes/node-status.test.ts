import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { decodeNode, isEligible, type NodeStatus } from '../../src/kubernetes/node-status.ts';

function decoded(node: object): NodeStatus {
  const result = decodeNode(node);
  assert.ok(result.status === 'ok', JSON.stringify(result));
  return result.value;
}

function node(parts: { metadata?: object; spec?: object; status?: object } = {}) {
  return { kind: 'Node', ...parts, metadata: { name: 'node-1', ...parts.metadata } };
}

describe('a Node object', () => {
  test('gives name, zone, addresses and taints', () => {
    const status = decoded(
      node({
        metadata: { labels: { 'topology.kubernetes.io/zone': 'zone-a', other: 'x' } },
        spec: { taints: [{ key: 'dedicated', value: 'db', effect: 'NoSchedule' }, { key: 'b' }] },
        status: {
          addresses: [
            { type: 'Hostname', address: 'node-1' },
            { type: 'InternalIP', address: '10.0.0.5' },
            { type: 'InternalIP', address: 'fd00:0::5' },
            { type: 'ExternalIP', address: '203.0.113.5' },
          ],
        },
      }),
    );
    assert.deepEqual(status, {
      name: 'node-1',
      zone: 'zone-a',
      addresses: ['10.0.0.5', 'fd00::5'],
      podCidrs: [],
      taints: ['dedicated', 'b'],
      isDeleted: false,
    });
  });

  test('may have nothing but its name', () => {
    const bare = { name: 'node-1', zone: undefined, addresses: [], podCidrs: [], taints: [], isDeleted: false };
    assert.deepEqual(decoded(node()), bare);
    assert.deepEqual(decoded(node({ metadata: { labels: { 'topology.kubernetes.io/zone': '' } } })), bare);
    assert.deepEqual(decoded(node({ spec: { taints: null }, status: { addresses: null } })), bare);
  });

  test('is not valid without a name, or in another shape', () => {
    for (const wrong of [null, 7, [], {}, { metadata: { name: 'a/b' } }, node({ spec: { taints: 'x' } })]) {
      assert.equal(decodeNode(wrong).status, 'invalid', JSON.stringify(wrong));
    }
  });

  test('keeps its good taints beside a bad one', () => {
    const result = decodeNode(node({ spec: { taints: [{ key: 7 }, null, { key: 'good' }] } }));
    assert.ok(result.status === 'ok');
    assert.deepEqual(result.value.taints, ['good']);
    assert.equal(result.warnings.length, 2);
  });
});

describe('load balancers may send to a node', () => {
  const taint = (key: string) => decoded(node({ spec: { taints: [{ key, effect: 'NoSchedule' }] } }));

  test('until it is about to go', () => {
    assert.equal(isEligible(decoded(node())), true);
    assert.equal(isEligible(decoded(node({ metadata: { deletionTimestamp: '2026-11-20T05:23:36Z' } }))), false);
    assert.equal(isEligible(taint('ToBeDeletedByClusterAutoscaler')), false);
  });

  test('whatever else it is tainted with', () => {
    for (const key of ['node.kubernetes.io/unschedulable', 'DeletionCandidateOfClusterAutoscaler', 'dedicated']) {
      assert.equal(isEligible(taint(key)), true, key);
    }
  });
});
