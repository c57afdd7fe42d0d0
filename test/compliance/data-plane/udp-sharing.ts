import assert from 'node:assert/strict';
import { test } from 'node:test';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import type { RigFactory } from './harness.ts';

const MAX_FLOWS = 60;
/** What one namespace gets alone. */
const SHARE = 48;
const CLIENTS = 80;

export function udpSharingTests(makeRig: RigFactory): void {
  test('a namespace has its share of all UDP flows, and leaves room for others', async (t) => {
    const rig = await makeRig(t, { udpMaxFlows: MAX_FLOWS });
    const [silent, echo] = [await UdpBackend.start(t), await UdpBackend.echo(t)];
    const clients = async (port: number, count: number) =>
      Promise.all(Array.from({ length: count }, () => UdpClient.connect(t, port)));
    // The second time shows that nothing was lost count of.
    for (let round = 1; round <= 2; round++) {
      const hogs = [
        await rig.open('UDP', [silent.endpoint], undefined, 'hog'),
        await rig.open('UDP', [silent.endpoint], undefined, 'hog'),
      ];
      const sum = (counter: 'active' | 'limited') =>
        hogs.reduce((total, { name }) => total + rig.counters(name)[counter], 0);
      for (const { port } of hogs) for (const client of await clients(port, CLIENTS / 2)) client.send('?');
      // Two threads that begin a flow at the same time may pass the bound by one. On its way between two, a flow counts
      // twice.
      const isShared = () => {
        const active = sum('active');
        return (active === SHARE || active === SHARE + 1) && active + sum('limited') === CLIENTS;
      };
      await waitFor('the share to have flows, and all others none', isShared).catch((error: Error) => {
        throw new Error(`${error.message}: ${sum('active')} flows, ${sum('limited')} refused`);
      });
      const other = await rig.open('UDP', [echo.endpoint], undefined, 'other');
      await Promise.all((await clients(other.port, 8)).map((client) => client.ask('?')));
      assert.equal(rig.counters(other.name).limited, 0);
      const names = new Set<string>(hogs.map(({ name }) => name));
      await waitFor('the bound to be told', () => rig.events.limited.some(({ name }) => names.has(name)));
      for (const { name } of [...hogs, other]) await rig.plane.close(name);
    }
    const told = rig.events.limited.map(({ name, limit }) => `${name.split('/')[0]} ${limit}`);
    assert.deepEqual([...new Set(told)], ['hog flows-per-namespace']);
  });
}
