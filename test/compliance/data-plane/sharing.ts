import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ServicePortName } from '../../../src/model/service.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointsOf, type Rig, type RigFactory, SETTLED_MS } from './harness.ts';

/** Enough for some sixty connections of one namespace alone. */
const ROOM = 240;
const CROWD = 120;

/** Each sends a byte, and the backend echoes it. */
async function crowd(port: number, count = CROWD): Promise<readonly TcpPeer[]> {
  const clients = await Promise.all(Array.from({ length: count }, () => connectTcp(port)));
  for (const client of clients) client.send('?');
  return clients;
}

const served = (clients: readonly TcpPeer[]): readonly TcpPeer[] =>
  clients.filter(({ receivedBytes }) => receivedBytes > 0);

/** It asks until it is answered, as a resolver does. */
async function answered(client: UdpClient): Promise<void> {
  const before = client.received.length;
  await waitFor('an answer', async () => {
    client.send('?');
    await sleep(SETTLED_MS);
    return client.received.length > before;
  });
}

/** Each ends when it has been served. */
async function endAll(clients: readonly TcpPeer[]): Promise<void> {
  for (let left = clients; left.length > 0; left = left.filter(({ isOver }) => !isOver)) {
    for (const client of served(left)) if (!client.socket.writableEnded) client.end();
    await sleep(20);
  }
}

export function sharingTests(makeRig: RigFactory): void {
  const start = async (t: TestContext) => {
    const echo = await TcpBackend.echo(t);
    const names = await UdpBackend.named(t, 'here');
    const rig = await makeRig(t, {}, readdirSync('/proc/self/fd').length + ROOM);
    // In one process, two engines would count the descriptors that both have twice.
    await rig.stay();
    const tcp = (namespace: string) => rig.open('TCP', endpointsOf([echo]), undefined, namespace);
    const udp = (namespace: string) => rig.open('UDP', endpointsOf([names]), undefined, namespace);
    return { rig, tcp, udp };
  };
  const isLimited = ({ events }: Rig, port: { readonly name: ServicePortName }) =>
    events.limited.some(({ name, limit }) => name === port.name && limit === 'descriptors');

  test('idle connections of a namespace leave descriptors to others; its own clients wait, and none is lost', async (t) => {
    const { rig, tcp, udp } = await start(t);
    const [hog, other, dns] = [await tcp('hog'), await tcp('other'), await udp('dns')];
    const asker = await UdpClient.connect(t, dns.port);
    // The second time shows that nothing was lost count of.
    for (let i = 0; i < 2; i++) {
      const clients = await crowd(hog.port);
      // Alone it gets sixty.
      await waitFor('the hog to have its share', () => rig.counters(hog.name).active > 45);
      await waitFor('the pause to be counted', () => rig.counters(hog.name).pauses > 0);

      const others = await crowd(other.port, 5);
      await waitFor('others to be served', () => served(others).length === 5);
      await answered(asker);
      const { active } = rig.counters(hog.name);
      t.diagnostic(`${active} of ${CROWD} are served`);
      assert.ok(active < 90, `${active} of ${CROWD} are served`);

      await endAll([...clients, ...others]);
      assert.equal(served(clients).length, CROWD);
      assert.deepEqual([...new Set(clients.map(({ error }) => error))], [undefined]);
      await waitFor('all to be over', () => rig.counters(hog.name).active + rig.counters(other.name).active === 0);
    }
    await waitFor('the limit to be told', () => isLimited(rig, hog));
    assert.deepEqual(rig.events.listenerFailed, []);
  });

  test('UDP flows of a namespace leave descriptors to others, too', async (t) => {
    const { rig, tcp, udp } = await start(t);
    const [hog, other, dns] = [await udp('hog'), await tcp('other'), await udp('dns')];
    for (let i = 0; i < ROOM; i++) (await UdpClient.connect(t, hog.port)).send('?');
    await waitFor('the hog to reach its share', () => rig.counters(hog.name).limited > 0);
    await answered(await UdpClient.connect(t, dns.port));
    const others = await crowd(other.port, 5);
    await waitFor('others to be served', () => served(others).length === 5);
    await waitFor('the limit to be told', () => isLimited(rig, hog));
    await endAll(others);
  });

  test('clients of a namespace that wait leave descriptors to others, and all of them are served in the end', async (t) => {
    const { rig, tcp } = await start(t);
    const [hog, other] = [await tcp('hog'), await tcp('other')];
    const waiting = { forEndpointsMs: 60_000, whileFullMs: 0, max: 1_000 };
    await rig.update(hog.name, { ...backends([]), waiting });
    const clients = await crowd(hog.port, 2 * CROWD);
    await waitFor('the hog to have its share', () => rig.counters(hog.name).pauses > 0);
    const { waiting: now } = rig.counters(hog.name);
    t.diagnostic(`${now} of ${clients.length} wait`);
    // One descriptor each, and so more than can be connected at once.
    assert.ok(now > 70 && now < 200, `${now} wait`);
    const others = await crowd(other.port, 5);
    await waitFor('others to be served', () => served(others).length === 5);

    const echo = await TcpBackend.echo(t);
    await rig.update(hog.name, { ...backends([echo.endpoint]), waiting });
    await endAll([...clients, ...others]);
    assert.deepEqual([served(clients).length, rig.counters(hog.name).waitTimeouts], [clients.length, 0]);
    await waitFor('all to be over', () => rig.counters(hog.name).active + rig.counters(other.name).active === 0);
    // Nothing was lost count of.
    const again = await crowd(hog.port, CROWD);
    await endAll(again);
  });
}
