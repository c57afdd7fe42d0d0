import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { backends, endpointAt } from '../../compliance/data-plane/harness.ts';
import { BLACK_HOLE, buildNetwork } from '../../compliance/data-plane/network.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp } from '../../support/tcp.ts';
import { manualRig } from './rig.ts';

const SPEC = listenSpec({ name: 'test/dial', protocol: 'TCP', address: '127.0.0.1', port: 0 });

before(buildNetwork);

test('tries wait 250 ms, 500 ms, 1 s, then 2 s each, and the client is closed after the last', async (t) => {
  const { plane, clock, events } = manualRig(t);
  const holes = [81, 82, 83, 84, 85].map((port) => endpointAt(BLACK_HOLE, port));
  const client = await connectTcp(await plane.open(SPEC, backends(holes)));
  await waitFor('the first try', () => clock.pendingTimers === 1);
  for (const [index, timeoutMs] of [250, 500, 1000, 2000, 2000].entries()) {
    clock.advance(timeoutMs - 1);
    assert.equal(events.length, index);
    clock.advance(1);
    assert.match(events[index] ?? '', /timeout$/);
  }
  assert.equal(new Set(events.slice(0, 5)).size, 5, 'another endpoint each time');
  assert.equal(events[5], 'turned away: exhausted');
  await client.finished();
  assert.equal(clock.pendingTimers, 0);
});

test('a client that resets while its endpoint is dialled leaves no timer behind', async (t) => {
  const { plane, clock, events } = manualRig(t);
  const client = await connectTcp(await plane.open(SPEC, backends([endpointAt(BLACK_HOLE, 80)])));
  await waitFor('the first try', () => clock.pendingTimers === 1);
  client.reset();
  await waitFor('the try to be given up', () => clock.pendingTimers === 0);
  assert.deepEqual(events, []);
});

test('no further endpoint is tried 30 s after the client came, whether it has gone or waits', async (t) => {
  const { plane, clock, events } = manualRig(t);
  const holes = Array.from({ length: 40 }, (_, index) => endpointAt(BLACK_HOLE, 100 + index));
  const client = await connectTcp(await plane.open(SPEC, backends(holes)));
  client.end();
  await waitFor('the first try', () => clock.pendingTimers === 1);
  while (clock.pendingTimers > 0 && events.length < 40) clock.advance(250);
  assert.ok(clock.now() >= 30_000 && clock.now() < 32_250, `${clock.now()} ms`);
  assert.equal(events.at(-1), 'turned away: exhausted');
  await client.finished();
});
