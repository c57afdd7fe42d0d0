import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { describe, test } from 'node:test';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { decodeNode, isEligible, type NodeStatus, nodeName, watchNode } from '../../src/kubernetes/node.ts';
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
  t.after(stop);
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
  return { clock, log, transport, told, stop, list, pass };
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

test('it asks for its own node and no other', async (t) => {
  const { transport } = watch(t);
  const { path, query } = await transport.call('watch');
  assert.equal(path.split('?')[0], '/api/v1/nodes');
  assert.equal(query['fieldSelector'], 'metadata.name=node-1');
  assert.equal(query['labelSelector'], undefined);
});

test('it reports the first state and every real difference', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(versionOf('1', { zone: 'a' }));
  assert.deepEqual(told, [
    { name: 'node-1', zone: 'a', addresses: ['10.0.0.5'], podCidrs: [], taints: [], isDeleted: false },
  ]);
  // A heartbeat: nothing of what is read has changed.
  stream.send(modified(versionOf('11', { zone: 'a' })));
  stream.send(modified(versionOf('12', { zone: 'a', taint: 'x' })));
  await settle();
  assert.deepEqual(
    told.slice(1).map(({ taints }) => taints),
    [['x']],
  );
});

test('it reports other addresses and the blocks of pods; what is no block is ignored', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(versionOf('1'));
  const moved = { ...versionOf('11'), status: { addresses: [{ type: 'InternalIP', address: '10.0.0.6' }] } };
  stream.send(modified(moved));
  stream.send(modified({ ...versionOf('12'), spec: { podCIDRs: ['10.244.1.0/24', 'x', 7, null, 'fd00:244:1::/64'] } }));
  await settle();
  assert.deepEqual(
    told.map(({ addresses, podCidrs }) => [...addresses, ...podCidrs.map(({ network }) => network)]),
    [['10.0.0.5'], ['10.0.0.6'], ['10.0.0.5', '10.244.1.0', 'fd00:244:1::']],
  );
});

test('a node that has gone keeps its last state, marked; it may come back', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(versionOf('1', { zone: 'a' }));
  stream.send(deleted(versionOf('11')));
  stream.send(added(versionOf('12', { zone: 'b' })));
  await settle();
  assert.deepEqual(
    told.map(({ zone, isDeleted }) => [zone, isDeleted]),
    [
      ['a', false],
      ['a', true],
      ['b', false],
    ],
  );
});

test('a server that disregards the selector does not get its other nodes taken for this one', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(versionOf('1', { name: 'node-2' }), versionOf('2'));
  stream.send(deleted(versionOf('11', { name: 'node-2' })));
  await settle();
  assert.deepEqual(
    told.map(({ name, isDeleted }) => [name, isDeleted]),
    [['node-1', false]],
  );
});

test('a node that does not exist yet is no deleted one', async (t) => {
  const { told, list } = watch(t);
  await list();
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

test('stopping ends it', async (t) => {
  const { transport, clock, stop } = watch(t);
  await transport.call('watch');
  await stop();
  assert.equal(clock.pendingTimers, 0);
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
