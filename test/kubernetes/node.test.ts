import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { describe, test } from 'node:test';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { decodeNode, isEligible, type NodeStatus, nodeName, watchNode } from '../../src/kubernetes/node.ts';
import { parseCidr } from '../../src/model/address.ts';
import { type FakeStream, FakeTransport } from '../fakes/fake-transport.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle } from '../support/until.ts';
import { added, deleted, initialEventsEnd, modified } from './objects.ts';

function watch(t: { after(run: () => Promise<void>): void }) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const transport = new FakeTransport(clock);
  const told: NodeStatus[] = [];
  const controller = new AbortController();
  const run = watchNode({
    ...{ name: 'node-1', transport, clock, random: () => 0, log },
    onChange: (status) => told.push(status),
    signal: controller.signal,
  });
  const stop = async () => {
    controller.abort(new Error('stopped'));
    await run;
  };
  t.after(async () => {
    await stop();
    assert.equal(clock.pendingTimers, 0);
  });
  /** A streamed list of these, up to its end. */
  const list = async (...nodes: object[]): Promise<FakeStream> => {
    const stream = (await transport.call('watch')).open();
    stream.send(...nodes.map(added), initialEventsEnd('10'));
    await settle();
    return stream;
  };
  const pass = async (ms: number) => {
    await settle();
    clock.advance(ms);
    await settle();
  };
  return { log, transport, told, list, pass };
}

function versionOf(
  version: string,
  { name = 'node-1', zone, taint }: { name?: string; zone?: string; taint?: string } = {},
) {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, resourceVersion: version, ...(zone && { labels: { 'topology.kubernetes.io/zone': zone } }) },
    spec: taint === undefined ? {} : { taints: [{ key: taint, effect: 'NoSchedule' }] },
    status: { addresses: [{ type: 'InternalIP', address: '10.0.0.5' }] },
  };
}

test('it watches its own Node alone, and reports the first state and every real difference', async (t) => {
  const { transport, told } = watch(t);
  const call = await transport.call('watch');
  const { path, query } = call;
  assert.equal(path.split('?')[0], '/api/v1/nodes');
  assert.deepEqual([query['fieldSelector'], query['labelSelector']], ['metadata.name=node-1', undefined]);
  const stream = call.open();
  stream.send(added(versionOf('1', { zone: 'a' })), initialEventsEnd('10'));
  // A heartbeat: nothing that is read has changed.
  stream.send(modified(versionOf('11', { zone: 'a' })));
  stream.send(modified(versionOf('12', { zone: 'a', taint: 'x' })));
  stream.send(modified({ ...versionOf('13'), status: { addresses: [{ type: 'InternalIP', address: '10.0.0.6' }] } }));
  stream.send(modified({ ...versionOf('14'), spec: { podCIDRs: ['10.244.1.0/24', 'x', 7, null, 'fd00:244:1::/64'] } }));
  // A Node that is gone keeps its last state.
  stream.send(deleted(versionOf('15')));
  stream.send(added(versionOf('16', { zone: 'b' })));
  await settle();
  const first = { name: 'node-1', zone: 'a', addresses: ['10.0.0.5'], podCidrs: [], taints: [], isDeleted: false };
  const podCidrs = ['10.244.1.0/24', 'fd00:244:1::/64'].map((text) => parseCidr(text));
  assert.deepEqual(told, [
    first,
    { ...first, taints: ['x'] },
    { ...first, zone: undefined, addresses: ['10.0.0.6'] },
    { ...first, zone: undefined, podCidrs },
    { ...first, zone: undefined, podCidrs, isDeleted: true },
    { ...first, zone: 'b' },
  ]);
});

test('other nodes are ignored, although the server sends them; a node that does not exist yet is not deleted', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(versionOf('1', { name: 'node-2' }));
  stream.send(deleted(versionOf('11', { name: 'node-2' })));
  await settle();
  assert.deepEqual(told, []);
});

test('an invalid Node leaves the last state, and is reported once', async (t) => {
  const { told, log, list } = watch(t);
  const stream = await list(versionOf('1'));
  const broken = { ...versionOf('11'), spec: { taints: 'x' } };
  stream.send(modified(broken), modified({ ...broken, metadata: { ...broken.metadata, resourceVersion: '12' } }));
  await settle();
  assert.equal(told.length, 1);
  assert.deepEqual(
    log.of('error').map(({ message }) => message),
    ['Node "node-1" is not valid; its last good state is kept'],
  );
});

test('a watch that the server forbids is reported once and retried; meanwhile the node is read once', async (t) => {
  const { log, transport, told, list, pass } = watch(t);
  const forbidden = new ApiError('status', 'HTTP 403: nodes is forbidden', { status: 403 });
  (await transport.call('watch')).fail(forbidden);
  // The role of old releases may get its node.
  const get = await transport.call('get');
  assert.equal(get.path, '/api/v1/nodes/node-1');
  get.answer(versionOf('1'));
  for (let tries = 0; tries < 3; tries += 1) {
    await pass(60_000);
    (await transport.call('watch')).fail(forbidden);
  }
  assert.equal(told.length, 1);
  await pass(60_000);
  assert.deepEqual(log.of('warn'), [
    {
      level: 'warn',
      message: 'The Node object of this node cannot be watched; its last known state stands',
      fields: { node: 'node-1', err: 'HTTP 403: nodes is forbidden' },
    },
  ]);
  const stream = await list(versionOf('1', { zone: 'b' }));
  assert.equal(told.length, 2);
  stream.fail(new ApiError('unreachable', 'connection reset'));
  await pass(60_000);
  (await transport.call('watch')).fail(forbidden);
  await settle();
  assert.equal(log.of('warn').length, 2);
});

test('a node without an address is reported once half a minute has passed', async (t) => {
  const { log, list, pass } = watch(t);
  const stream = await list();
  await pass(30_000);
  stream.send(added({ ...versionOf('11'), status: {} }));
  await settle();
  assert.deepEqual(log.of('warn'), []);
  await pass(1_000);
  assert.deepEqual(
    log.of('warn').map(({ message }) => message),
    ['The Node object of this node gives no address'],
  );
});

test('the name is the override, or the host name, as the kubelet spells it', () => {
  assert.equal(nodeName(' Node-1.Example '), 'node-1.example');
  assert.equal(nodeName(undefined), hostname().toLowerCase());
  assert.equal(nodeName(''), hostname().toLowerCase());
});

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

  test('without an internal address gives the external one; what is no address of a node is ignored', () => {
    const addressesOf = (...addresses: unknown[]) => decoded(node({ status: { addresses } })).addresses;
    const odd = ['127.0.0.1', '169.254.0.1', 'node-1', '10.0.0.5\n-A INPUT', 7].map((address) => ({
      ...{ type: 'InternalIP', address },
    }));
    assert.deepEqual(addressesOf(...odd, null, 'text', { type: 'InternalIP' }), []);
    assert.deepEqual(addressesOf(...odd, { type: 'ExternalIP', address: '203.0.113.5' }), ['203.0.113.5']);
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

test('load balancers may send to a node until it is about to go, whatever else its taints are', () => {
  const tainted = (key: string) => node({ spec: { taints: [{ key, effect: 'NoSchedule' }] } });
  for (const [object, expected] of [
    [node(), true],
    [tainted('node.kubernetes.io/unschedulable'), true],
    [tainted('DeletionCandidateOfClusterAutoscaler'), true],
    [tainted('ToBeDeletedByClusterAutoscaler'), false],
    [node({ metadata: { deletionTimestamp: '2026-11-20T05:23:36Z' } }), false],
  ] as const) {
    assert.equal(isEligible(decoded(object)), expected, JSON.stringify(object));
  }
});
