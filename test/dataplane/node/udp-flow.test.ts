import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { backends } from '../../compliance/data-plane/harness.ts';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { manualRig } from './rig.ts';

const SPEC = { name: 'test/udp', protocol: 'UDP', address: '127.0.0.1', port: 0 } as const;

async function flow(t: TestContext) {
  const { plane, clock } = manualRig(t, { udpIdleTimeoutMs: 250, udpFirstReplyTimeoutMs: 5000 });
  const backend = await UdpBackend.start(t);
  const client = await UdpClient.connect(t, await plane.open(SPEC, backends([backend.endpoint])));
  const send = async (): Promise<void> => {
    const count = backend.arrivals.length;
    client.send('?');
    await waitFor('the datagram to arrive', () => backend.arrivals.length > count);
  };
  const reply = async (): Promise<void> => {
    const count = client.received.length;
    backend.push(backend.flows.at(-1) ?? 0, 'reply');
    await waitFor('the reply to arrive', () => client.received.length > count);
  };
  return { clock, send, reply, active: () => [...plane.stats()][0]?.counters.active };
}

test('without a reply a flow ends after 5 s of silence, to the millisecond', async (t) => {
  const { clock, send, active } = await flow(t);
  await send();
  clock.advance(3000);
  await send();
  clock.advance(4999);
  assert.equal(active(), 1);
  clock.advance(1);
  assert.equal(active(), 0);
  assert.equal(clock.pendingTimers, 0);
});

test('from the first reply on it ends after 250 ms of silence, to the millisecond', async (t) => {
  const { clock, send, reply, active } = await flow(t);
  await send();
  clock.advance(100);
  await reply();
  clock.advance(249);
  await send();
  clock.advance(249);
  await reply();
  clock.advance(249);
  assert.equal(active(), 1);
  clock.advance(1);
  assert.equal(active(), 0);
  assert.equal(clock.pendingTimers, 0);
});
