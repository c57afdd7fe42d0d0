import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { backends } from '../../compliance/data-plane/harness.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { RawListener } from '../../support/raw-tcp.ts';
import { connectTcp } from '../../support/tcp.ts';
import { manualRig } from './rig.ts';

const SPEC = listenSpec({ name: 'test/early-reset', protocol: 'TCP', address: '127.0.0.1', port: 0 });

test('what an endpoint sent before a reset arrives, also when both come before the engine knows of the connection', async (t) => {
  const { plane, clock } = manualRig(t);
  const listener = new RawListener(t);
  const client = await connectTcp(await plane.open(SPEC, backends([listener.endpoint])));
  // The engine has begun to connect in this turn of the loop, and learns how that went in the next.
  for (let turns = 0; clock.pendingTimers === 0; turns++) {
    assert.ok(turns < 100_000, 'the engine does not dial');
    await turn();
  }
  const endpoint = listener.accept();
  endpoint.send('banner');
  endpoint.reset();
  assert.equal(await client.finished(), 'ECONNRESET');
  assert.equal(client.text, 'banner');
});

test('it arrives also when the engine writes to the endpoint first', async (t) => {
  const { plane } = manualRig(t);
  const listener = new RawListener(t);
  const client = await connectTcp(await plane.open(SPEC, backends([listener.endpoint])));
  await waitFor('the connection', () => [...plane.stats()][0]?.counters.connects === 1);
  const endpoint = listener.accept();
  client.send('request');
  endpoint.send('banner');
  endpoint.reset();
  assert.equal(await client.finished(), 'ECONNRESET');
  assert.equal(client.text, 'banner');
  assert.equal([...plane.stats()][0]?.counters.sentBytes, 6);
});
