import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from '../../src/kubernetes/api-error.ts';
import { postNeedPods, reportStarting, UnservedEvents } from '../../src/kubernetes/events.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle } from '../support/until.ts';

function setUp({ node = 'node-1', post = async (): Promise<unknown> => ({}) } = {}) {
  const posted: { path: string; body: { metadata: { name: string }; reason: string; message: string } }[] = [];
  const clock = new ManualClock(1_700_000_000_000);
  const log = new RecordingLog();
  const controller = new AbortController();
  const environment = {
    node,
    api: {
      post: async (path: string, body: unknown) => {
        posted.push({ path, body: body as never });
        return await post();
      },
    },
    ...{ clock, log, signal: controller.signal },
  };
  const events = new UnservedEvents({ ...environment, random: () => 0.5 });
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await settle();
  };
  return { posted, environment, events, log, clock, controller, pass };
}

test('the event is a warning on the Service, in its namespace, and says which port and why', async () => {
  const { posted, events, pass } = setUp();
  events.report({ name: 'shop/web:sctp', found: 'SCTP is not supported in user space', uid: 'a-b-c' });
  await pass(15_000);
  const name = posted[0]?.body.metadata.name ?? '';
  assert.match(name, /^web\.[0-9a-f]{16}$/);
  assert.deepEqual(posted, [
    {
      path: '/api/v1/namespaces/shop/events',
      body: {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { name, namespace: 'shop' },
        involvedObject: { kind: 'Service', namespace: 'shop', name: 'web', uid: 'a-b-c' },
        type: 'Warning',
        reason: 'ServicePortNotServed',
        message: 'shop/web:sctp is not served: SCTP is not supported in user space',
        source: { component: 'kube-proxy', host: 'node-1' },
        firstTimestamp: '2023-11-14T22:13:35Z',
        lastTimestamp: '2023-11-14T22:13:35Z',
        count: 1,
      },
    },
  ]);
});

test('a call for pods is the event that OpenShift looks for: at once, each one anew, with the time of now', async () => {
  const { posted, environment } = setUp();
  await postNeedPods({ name: 'shop/web:http', port: 80, uid: 'a-b-c' }, environment);
  await postNeedPods({ name: 'shop/web', port: 80 }, environment);
  const now = '2023-11-14T22:13:20Z';
  assert.deepEqual(posted[0], {
    path: '/api/v1/namespaces/shop/events',
    body: {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { generateName: 'web.', namespace: 'shop' },
      involvedObject: { kind: 'Service', namespace: 'shop', name: 'web', uid: 'a-b-c' },
      type: 'Normal',
      reason: 'NeedPods',
      message: 'The service-port web:http needs pods.',
      source: { component: 'kube-proxy', host: 'node-1' },
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
    },
  });
  assert.equal(posted[1]?.body.message, 'The service-port web:80 needs pods.');
  const refusing = setUp({ post: async () => Promise.reject(new ApiError('status', 'HTTP 403', { status: 403 })) });
  await assert.rejects(postNeedPods({ name: 'shop/web', port: 80 }, refusing.environment), /403/);
});

test('every node gives the event the same name, so that the cluster has it once; a Service made anew has its own', async () => {
  const nameOf = async (node: string, uid: string, port = 'sctp'): Promise<string> => {
    const { posted, events, pass } = setUp({ node });
    events.report({ name: `shop/web:${port}`, found: 'SCTP', uid });
    await pass(15_000);
    return posted[0]?.body.metadata.name ?? assert.fail();
  };
  const name = await nameOf('node-1', 'a');
  assert.equal(await nameOf('node-2', 'a'), name);
  assert.equal(await nameOf('node-2', 'a', 'other'), name, 'whichever port comes first');
  assert.notEqual(await nameOf('node-1', 'b'), name);
});

test('that another node has written it is no trouble; any other refusal is logged', async () => {
  let status = 409;
  const { log, events, pass } = setUp({
    post: async () => {
      throw new ApiError('status', `HTTP ${status}`, { status });
    },
  });
  events.report({ name: 'shop/web', found: 'SCTP' });
  await pass(15_000);
  assert.deepEqual(log.lines, []);
  status = 403;
  events.report({ name: 'shop/db', found: 'SCTP' });
  await pass(15_000);
  assert.deepEqual(
    log.lines.map(({ message }) => message),
    ['The ServicePortNotServed event could not be sent'],
  );
});

test('a thousand at once become three events of each namespace, spread over time, and one line in the log', async () => {
  const { posted, log, events, clock, pass } = setUp();
  for (let i = 0; i < 1_000; i++) {
    for (const port of ['a', 'b']) events.report({ name: `shop/web-${i}:${port}`, found: 'SCTP' });
  }
  for (let i = 0; i < 100; i++) events.report({ name: `ns-${i}/web`, more: 4_999, found: 'SCTP' });
  await pass(0);
  assert.equal(posted.length, 0, 'other nodes have started, too');
  for (let sent = 1; sent <= 30; sent++) {
    await pass(15_000);
    assert.equal(posted.length, sent);
  }
  await pass(60_000);
  assert.equal(clock.pendingTimers, 0);
  assert.deepEqual(
    posted.map(({ body }) => body.message),
    [
      ...Array.from({ length: 3 }, (_, i) => `shop/web-${i}:a is not served: SCTP`),
      ...Array.from({ length: 27 }, (_, i) => `ns-${i}/web and 4999 more ports are not served: SCTP`),
    ],
  );
  assert.equal(log.lines.length, 1);
  events.report({ name: 'shop/late', found: 'SCTP' });
  await pass(15_000);
  assert.equal(posted.length, 31);
});

test('a namespace whose Services change all the time is rationed, and others are not', async () => {
  const { posted, events, pass } = setUp();
  for (let second = 0; second < 600; second++) {
    events.report({ name: `hog/web-${second}`, found: 'SCTP' });
    if (second === 500) events.report({ name: 'shop/web', found: 'SCTP' });
    await pass(1_000);
  }
  await pass(60_000);
  const of = (namespace: string) => posted.filter(({ path }) => path.includes(`/${namespace}/`)).length;
  assert.ok(of('hog') <= 20, `${of('hog')} events in ten minutes`);
  assert.equal(of('shop'), 1);
});

test('a part of a Service that is left out has an event, too', async () => {
  const { posted, events, pass } = setUp();
  events.report({
    name: 'shop/web',
    what: '7 of its 4103 external IPs',
    found: 'a Service gets at most 4096',
    uid: 'a',
  });
  await pass(15_000);
  const [{ body } = assert.fail()] = posted;
  assert.deepEqual(
    [body.reason, body.message],
    ['ServicePartLeftOut', 'shop/web goes without 7 of its 4103 external IPs: a Service gets at most 4096'],
  );
});

test('a program that ends sends none', async () => {
  const { posted, events, controller, clock } = setUp();
  events.report({ name: 'shop/web', found: 'SCTP' });
  controller.abort();
  await settle();
  assert.deepEqual([posted.length, clock.pendingTimers], [0, 0]);
});

test('the Starting event names the node as the kubelet does, and this program', async () => {
  const { posted, environment } = setUp();
  await reportStarting('kube-userspace-proxy 1.2.3', environment);
  assert.deepEqual(posted, [
    {
      path: '/api/v1/namespaces/default/events',
      body: {
        ...{ apiVersion: 'v1', kind: 'Event', metadata: { generateName: 'node-1.', namespace: 'default' } },
        involvedObject: { kind: 'Node', name: 'node-1', uid: 'node-1' },
        ...{ type: 'Normal', reason: 'Starting', message: 'Starting kube-userspace-proxy 1.2.3.', count: 1 },
        source: { component: 'kube-proxy', host: 'node-1' },
        ...{ firstTimestamp: '2023-11-14T22:13:20Z', lastTimestamp: '2023-11-14T22:13:20Z' },
      },
    },
  ]);
});
