import assert from 'node:assert/strict';
import { test } from 'node:test';
import { UnservedEvents } from '../../../src/sources/kubernetes/service-event.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

function setUp() {
  const posted: { path: string; body: object }[] = [];
  const events = new UnservedEvents({
    node: 'node-1',
    api: { post: async (path, body) => posted.push({ path, body: body as object }) },
    clock: new ManualClock(1_700_000_000_000),
    log: new RecordingLog(),
    signal: new AbortController().signal,
  });
  return { posted, events };
}

test('the event is a warning on the Service, in its namespace, and says which port, where and why', async () => {
  const { posted, events } = setUp();
  await events.report({ name: 'shop/web:sctp', reason: 'SCTP is not supported in user space', uid: 'a-b-c' });
  assert.deepEqual(posted, [
    {
      path: '/api/v1/namespaces/shop/events',
      body: {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { generateName: 'web.', namespace: 'shop' },
        involvedObject: { kind: 'Service', namespace: 'shop', name: 'web', uid: 'a-b-c' },
        type: 'Warning',
        reason: 'ServicePortNotServed',
        message: 'shop/web:sctp is not served on node-1: SCTP is not supported in user space',
        source: { component: 'kube-proxy', host: 'node-1' },
        firstTimestamp: '2023-11-14T22:13:20Z',
        lastTimestamp: '2023-11-14T22:13:20Z',
        count: 1,
      },
    },
  ]);
});

test('there is a bound on how many are sent', async () => {
  const { posted, events } = setUp();
  for (let i = 0; i < 1_000; i++) await events.report({ name: `shop/web-${i}`, reason: 'of that' });
  assert.equal(posted.length, 100);
});
