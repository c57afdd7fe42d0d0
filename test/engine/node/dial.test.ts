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
