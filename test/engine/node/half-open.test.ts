import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { backends } from '../../compliance/data-plane/harness.ts';
import type { ManualClock } from '../../fakes/manual-clock.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { manualRig } from './rig.ts';

const SPEC = listenSpec({ name: 'test/half-open', protocol: 'TCP', address: '127.0.0.1', port: 0 });
const TIMEOUT_MS = 300_000;

async function halfOpen(t: TestContext): Promise<{ clock: ManualClock; client: TcpPeer; backend: TcpPeer }> {
  const { plane, clock } = manualRig(t, { tcpHalfOpenTimeoutMs: TIMEOUT_MS });
  const server = await TcpBackend.start(t);
  const client = await connectTcp(await plane.open(SPEC, backends([server.endpoint])));
  const backend = await waitFor('the backend to accept', () => server.peers[0]);
  await waitFor('dialling to be over', () => clock.pendingTimers === 0);
  client.end();
  await backend.finished();
  assert.equal(clock.pendingTimers, 1);
  return { clock, client, backend };
}

test('no timer is left when both directions have ended', async (t) => {
  const { clock, client, backend } = await halfOpen(t);
  backend.end();
  assert.equal(await client.finished(), 'end');
  await waitFor('the timer to be cancelled', () => clock.pendingTimers === 0);
});

test('a slow reader still gets all that was sent to it before the other side ended', async (t) => {
  const { plane, clock } = manualRig(t, { tcpHalfOpenTimeoutMs: TIMEOUT_MS });
  const bytes = Buffer.alloc(300_000, 'x');
  const server = await TcpBackend.start(t, (peer) => peer.end(bytes));
  const client = await connectTcp(await plane.open(SPEC, backends([server.endpoint])));
  client.socket.pause();
  await waitFor('the bytes to be copied', () => [...plane.stats()][0]?.counters.sentBytes === bytes.length);
  await waitFor('the end to be seen', () => clock.pendingTimers === 1);
  clock.advance(TIMEOUT_MS);
  await waitFor('the connection to be over', () => [...plane.stats()][0]?.counters.active === 0);
  client.socket.resume();
  assert.equal(await client.finished(), 'end');
  assert.equal(client.receivedBytes, bytes.length);
});
