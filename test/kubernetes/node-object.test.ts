import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { test } from 'node:test';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { reportStarting } from '../../src/kubernetes/node-event.ts';
import { awaitNode, nodeName } from '../../src/kubernetes/node-object.ts';
import { FakeTransport } from '../fakes/fake-transport.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle } from '../support/until.ts';

function ask() {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const api = new FakeTransport(clock);
  const controller = new AbortController();
  let answer: readonly string[] | undefined | 'waiting' = 'waiting';
  const done = awaitNode({ name: 'node-1', api, clock, random: () => 0, log, signal: controller.signal }).then(
    (status) => {
      answer = status?.addresses;
    },
  );
  return { clock, log, api, controller, done, answer: () => answer };
}

function node(...addresses: unknown[]) {
  return { kind: 'Node', metadata: { name: 'node-1' }, status: { addresses } };
}

const NOT_FOUND = new ApiError('status', 'HTTP 404: nodes "node-1" not found', { status: 404 });

test('the name is the override, or the host name, as the kubelet spells it', () => {
  assert.equal(nodeName(' Node-1.Example '), 'node-1.example');
  assert.equal(nodeName(undefined), hostname().toLowerCase());
  assert.equal(nodeName(''), hostname().toLowerCase());
});

test('all internal addresses are given, of both families', async () => {
  const { api, done, answer } = ask();
  const call = await api.call('get');
  assert.equal(call.path, '/api/v1/nodes/node-1');
  call.answer(
    node(
      { type: 'Hostname', address: 'node-1' },
      { type: 'ExternalIP', address: '203.0.113.5' },
      { type: 'InternalIP', address: '10.0.0.5' },
      { type: 'InternalIP', address: 'fd00:0::5' },
    ),
  );
  await done;
  assert.deepEqual(answer(), ['10.0.0.5', 'fd00::5']);
});

test('without an internal address the external one counts', async () => {
  const { api, done, answer } = ask();
  (await api.call('get')).answer(node({ type: 'ExternalIP', address: '203.0.113.5' }));
  await done;
  assert.deepEqual(answer(), ['203.0.113.5']);
});

test('what is no address of a node is passed over', async () => {
  const { api, answer } = ask();
  const odd = ['127.0.0.1', '169.254.0.1', 'node-1', '10.0.0.5\n-A INPUT', 7].map((address) => ({
    type: 'InternalIP',
    address,
  }));
  (await api.call('get')).answer(node(...odd, null, 'text', { type: 'InternalIP' }));
  await settle();
  assert.equal(answer(), 'waiting');
});

test('the node is waited for as upstream does, six times in half a minute, and then no longer', async () => {
  const { api, clock, done, answer, log } = ask();
  const failures = [NOT_FOUND, node(), {}, null, node({ type: 'Hostname', address: 'x' })];
  for (const [index, failure] of failures.entries()) {
    const call = await api.call('get');
    if (failure instanceof Error) call.fail(failure);
    else call.answer(failure);
    await settle();
    clock.advance(1_000 * 2 ** index - 1);
    await api.assertIdle();
    clock.advance(1);
  }
  assert.equal(clock.now(), 31_000);
  (await api.call('get')).fail(NOT_FOUND);
  await done;
  assert.equal(answer(), undefined);
  assert.match(String(log.of('warn')[0]?.fields['err']), /not found/);
});

test('stopping ends the wait without a word', async () => {
  const { api, clock, controller, done, log, answer } = ask();
  (await api.call('get')).fail(NOT_FOUND);
  await settle();
  controller.abort();
  await done;
  assert.deepEqual([answer(), log.of('warn').length, clock.pendingTimers], [undefined, 0, 0]);
});

test('the Starting event names the node as the kubelet does, and this program', async () => {
  const posted: { path: string; body: unknown }[] = [];
  await reportStarting({
    node: 'node-1',
    program: 'kube-userspace-proxy 1.2.3',
    api: { post: async (path, body) => posted.push({ path, body }) },
    clock: new ManualClock(1_700_000_000_000),
    log: new RecordingLog(),
    signal: new AbortController().signal,
  });
  assert.deepEqual(posted, [
    {
      path: '/api/v1/namespaces/default/events',
      body: {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { generateName: 'node-1.', namespace: 'default' },
        involvedObject: { kind: 'Node', name: 'node-1', uid: 'node-1' },
        type: 'Normal',
        reason: 'Starting',
        message: 'Starting kube-userspace-proxy 1.2.3.',
        source: { component: 'kube-proxy', host: 'node-1' },
        firstTimestamp: '2023-11-14T22:13:20Z',
        lastTimestamp: '2023-11-14T22:13:20Z',
        count: 1,
      },
    },
  ]);
});

test('an event that cannot be sent is no trouble', async () => {
  const log = new RecordingLog();
  await reportStarting({
    node: 'node-1',
    program: 'x',
    api: { post: () => Promise.reject(new ApiError('status', 'HTTP 403', { status: 403 })) },
    clock: new ManualClock(),
    log,
    signal: new AbortController().signal,
  });
  assert.deepEqual(log.of('warn').concat(log.of('error')), []);
});
