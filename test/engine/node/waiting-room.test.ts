import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Backends, Counters, WaitingTerms } from '../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp, refusingEndpoint, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { settle } from '../../support/until.ts';
import { manualRig } from './rig.ts';

/* What the room does by the clock. The compliance suite has all that can be seen within a second. */

const TERMS: WaitingTerms = { forEndpointsMs: 30_000, whileFullMs: 5_000, max: 1_000 };

async function manualRoom(t: TestContext, protocol: ProxiedProtocol, endpoints: readonly NamedEndpoint[] = []) {
  const rig = manualRig(t);
  const spec = listenSpec({ name: 'a/b', protocol, address: '127.0.0.1', port: 0 });
  const backends = (some: readonly NamedEndpoint[], more: Partial<Backends> = {}): Backends => ({
    ...{ endpoints: some, affinity: { type: 'None' }, waiting: TERMS },
    ...more,
  });
  const port = await rig.plane.open(spec, backends(endpoints));
  const update = (some: readonly NamedEndpoint[], more?: Partial<Backends>) =>
    rig.plane.update(spec.id, backends(some, more));
  const counters = (): Readonly<Counters> => rig.plane.statsOf(spec.id)?.counters ?? assert.fail();
  const waiting = (count: number) => waitFor(`${count} to wait`, () => counters().waiting === count);
  /** Turns of the engine come by the clock, too. */
  const pass = async (ms: number): Promise<void> => {
    rig.clock.advance(ms);
    for (let i = 0; i < 3; i++) {
      await settle();
      rig.clock.advance(0);
    }
  };
  const connect = async (count: number): Promise<TcpPeer> => {
    const peer = await connectTcp(port);
    peer.send('.');
    await waiting(count);
    return peer;
  };
  return { ...rig, port, update, counters, waiting, pass, connect };
}

test('a client waits for an endpoint as long as it may, each in its own time', async (t) => {
  const { counters, pass, connect } = await manualRoom(t, 'TCP');
  const one = await connect(1);
  await pass(20_000);
  const two = await connect(2);
  await pass(9_900);
  assert.equal(counters().waiting, 2);
  await pass(200);
  assert.equal(await one.finished(), 'ECONNRESET');
  assert.equal(counters().waiting, 1);
  await pass(19_800);
  assert.equal(counters().waiting, 1);
  await pass(200);
  assert.equal(await two.finished(), 'ECONNRESET');
  const { waitTimeouts, waits30000ms, waits120000ms, waitMs, active } = counters();
  assert.deepEqual([waitTimeouts, waits30000ms + waits120000ms, active], [2, 2, 0]);
  assert.ok(waitMs >= 60_000 && waitMs <= 60_400, `${waitMs} ms`);
});

test('one that has waited for an endpoint and finds it full has the whole time of that, once', async (t) => {
  const { update, counters, pass, connect } = await manualRoom(t, 'TCP');
  const server = await TcpBackend.echo(t);
  const one = await connect(1);
  const two = await connect(2);
  await pass(29_000);
  update([server.endpoint], { maxConnections: 1 });
  await pass(0);
  await one.hasReceived(1);
  await pass(4_800);
  assert.equal(counters().waiting, 1);
  // Without endpoints again, and full again: it has had both times.
  update([], { maxConnections: 1 });
  await pass(100);
  update([server.endpoint], { maxConnections: 1 });
  await pass(300);
  assert.equal(await two.finished(), 'ECONNRESET');
  assert.equal(counters().waitTimeouts, 1);
  one.end();
  await one.finished();
});

test('those whom no endpoint answers are tried again, one each second, and all once one is answered', async (t) => {
  const refusing = refusingEndpoint(t);
  const { update, counters, pass, connect } = await manualRoom(t, 'TCP', [refusing]);
  const clients: TcpPeer[] = [];
  for (let i = 1; i <= 3; i++) clients.push(await connect(i));
  const tries = () => counters().failedRefused / 4;
  assert.equal(tries(), 3);
  for (let second = 1; second <= 5; second++) {
    await pass(1_000);
    await waitFor('a client to be tried', () => tries() >= 3 + second && counters().waiting === 3);
    assert.equal(tries(), 3 + second);
  }
  // Its answer calls those who have had a rest; nothing else says that there is one.
  const server = await TcpBackend.echo(t);
  update([refusing, server.endpoint]);
  await pass(0);
  for (const each of clients) {
    await waitFor('an answer', async () => {
      await pass(10);
      return each.receivedBytes > 0;
    });
  }
  for (const each of clients) each.end();
});

test('what a client of UDP has asked is kept until 5 s after its last datagram', async (t) => {
  const { port, update, counters, waiting, pass } = await manualRoom(t, 'UDP');
  const [one, two] = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
  await one.delivered('a');
  await two.delivered('b');
  await waiting(2);
  await pass(4_000);
  await one.delivered('c');
  await settle();
  await pass(2_000);
  await waitFor('the refusal', () => two.refusals > 0);
  assert.deepEqual([counters().waiting, counters().waitTimeouts], [1, 1]);
  const echo = await UdpBackend.echo(t);
  update([echo.endpoint]);
  await pass(0);
  await waitFor('both answers', () => one.texts.length === 2);
  assert.deepEqual(echo.texts, ['a', 'c']);
});

test('of each client of UDP so much is kept as for a replay', async (t) => {
  const { port, update, counters, waiting, pass } = await manualRoom(t, 'UDP');
  const one = await UdpClient.connect(t, port);
  for (let i = 0; i < 20; i++) await one.delivered(`${i}`);
  await waiting(1);
  await settle();
  const echo = await UdpBackend.echo(t);
  update([echo.endpoint]);
  await pass(0);
  await waitFor('the answers', () => one.texts.length === 16);
  assert.deepEqual(
    echo.texts,
    Array.from({ length: 16 }, (_, i) => `${i}`),
  );
  assert.equal(counters().notKept, 0);
});
