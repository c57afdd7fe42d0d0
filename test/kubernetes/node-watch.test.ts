import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import type { NodeStatus } from '../../src/kubernetes/node-status.ts';
import { watchNode } from '../../src/kubernetes/node-watch.ts';
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

function node(
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

test('it tells the first state and every real difference', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(node('1', { zone: 'a' }));
  assert.deepEqual(told, [
    { name: 'node-1', zone: 'a', addresses: ['10.0.0.5'], podCidrs: [], taints: [], isDeleted: false },
  ]);
  // A heartbeat: nothing of what is read has changed.
  stream.send(modified(node('11', { zone: 'a' })));
  stream.send(modified(node('12', { zone: 'a', taint: 'x' })));
  await settle();
  assert.deepEqual(
    told.slice(1).map(({ taints }) => taints),
    [['x']],
  );
});

test('it tells of other addresses and of blocks for pods; what is no block is passed over', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(node('1'));
  const moved = { ...node('11'), status: { addresses: [{ type: 'InternalIP', address: '10.0.0.6' }] } };
  stream.send(modified(moved));
  stream.send(modified({ ...node('12'), spec: { podCIDRs: ['10.244.1.0/24', 'x', 7, null, 'fd00:244:1::/64'] } }));
  await settle();
  assert.deepEqual(
    told.map(({ addresses, podCidrs }) => [...addresses, ...podCidrs.map(({ network }) => network)]),
    [['10.0.0.5'], ['10.0.0.6'], ['10.0.0.5', '10.244.1.0', 'fd00:244:1::']],
  );
});

test('a node that has gone keeps its last state, marked; it may come back', async (t) => {
  const { told, list } = watch(t);
  const stream = await list(node('1', { zone: 'a' }));
  stream.send(deleted(node('11')));
  stream.send(added(node('12', { zone: 'b' })));
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
  const stream = await list(node('1', { name: 'node-2' }), node('2'));
  stream.send(deleted(node('11', { name: 'node-2' })));
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

test('what is no Node leaves the last state, and is told once', async (t) => {
  const { told, log, list } = watch(t);
  const stream = await list(node('1'));
  const broken = { ...node('11'), spec: { taints: 'x' } };
  stream.send(modified(broken), modified({ ...broken, metadata: { ...broken.metadata, resourceVersion: '12' } }));
  await settle();
  assert.equal(told.length, 1);
  assert.deepEqual(
    log.of('error').map(({ message }) => message),
    ['Node "node-1" is not valid; its last good state is kept'],
  );
});

test('a server that forbids it is told once, and asked again until it allows', async (t) => {
  const { log, transport, told, list, pass } = watch(t);
  const forbidden = new ApiError('status', 'HTTP 403: nodes is forbidden', { status: 403 });
  for (let tries = 0; tries < 3; tries += 1) {
    (await transport.call('watch')).fail(forbidden);
    await pass(60_000);
  }
  assert.deepEqual(log.of('warn'), [
    {
      level: 'warn',
      message: 'The Node object of this node cannot be followed; what is known of it stands',
      fields: { node: 'node-1', err: 'HTTP 403: nodes is forbidden' },
    },
  ]);
  const stream = await list(node('1'));
  assert.equal(told.length, 1);
  stream.fail(new ApiError('unreachable', 'connection reset'));
  await pass(60_000);
  (await transport.call('watch')).fail(forbidden);
  await settle();
  assert.equal(log.of('warn').length, 2);
});

test('stopping ends it', async (t) => {
  const { transport, clock, stop } = watch(t);
  await transport.call('watch');
  await stop();
  assert.equal(clock.pendingTimers, 0);
});
