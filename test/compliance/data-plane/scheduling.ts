import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Backends } from '../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { SchedulerName } from '../../../src/model/scheduler.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, refusingEndpoint, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointsOf, type Rig, type RigFactory } from './harness.ts';

/** What the schedulers themselves do is shown without an engine; here, that an engine tells them what happens. */
export function schedulingTests(makeRig: RigFactory): void {
  const scheduled = (endpoints: Backends['endpoints'], scheduler: SchedulerName): Backends => {
    return { ...backends(endpoints), scheduler };
  };

  function openAt(rig: Rig, name: ServicePortName, endpoint: NamedEndpoint): number {
    for (const stats of rig.plane.stats()) {
      if (stats.name !== name) continue;
      const own = stats.endpoints?.find((each) => each.endpoint.port === endpoint.port);
      if (own !== undefined) return own.counters.active;
    }
    return assert.fail(`${name} has no such endpoint`);
  }

  /** Resolves when the endpoint has answered. */
  async function hold(port: number) {
    const peer = await connectTcp(port);
    peer.send('?');
    await waitFor('the echo', () => peer.text === '?');
    return peer;
  }

  test('lc sees which TCP connections are open, and which have ended', async (t) => {
    const rig = await makeRig(t);
    const [one, two] = [await TcpBackend.echo(t), await TcpBackend.echo(t)];
    const { name, port } = await rig.open('TCP', [one.endpoint]);
    const held = [await hold(port), await hold(port), await hold(port)];
    await rig.update(name, scheduled(endpointsOf([one, two]), 'lc'));
    for (let i = 0; i < 3; i++) await hold(port);
    assert.equal(openAt(rig, name, two.endpoint), 3, 'until it has as many');
    for (const peer of held) peer.end();
    await waitFor('them to end', () => openAt(rig, name, one.endpoint) === 0);
    for (let i = 0; i < 3; i++) await hold(port);
    assert.equal(openAt(rig, name, one.endpoint), 3);
    assert.equal(openAt(rig, name, two.endpoint), 3);
  });

  test('lc sees that a dial which failed is over', async (t) => {
    const rig = await makeRig(t);
    const backend = await TcpBackend.echo(t);
    const { name, port } = await rig.open('TCP', [backend.endpoint]);
    await rig.update(name, scheduled([backend.endpoint, refusingEndpoint(t)], 'lc'));
    // Both have no connection then, and the one that refused had its turn before the one that answered.
    for (let i = 0; i < 6; i++) {
      (await hold(port)).end();
      await waitFor('it to end', () => openAt(rig, name, backend.endpoint) === 0);
    }
    await waitFor('the refusals', () => rig.counters(name).failedRefused >= 5);
  });

  test('lc sees which UDP flows are open', async (t) => {
    const rig = await makeRig(t);
    const [one, two] = [await UdpBackend.echo(t), await UdpBackend.echo(t)];
    const { name, port } = await rig.open('UDP', [one.endpoint]);
    const flow = async () => assert.equal(String(await (await UdpClient.connect(t, port)).ask('?')), '?');
    for (let i = 0; i < 3; i++) await flow();
    await rig.update(name, scheduled(endpointsOf([one, two]), 'lc'));
    for (let i = 0; i < 3; i++) await flow();
    assert.deepEqual([openAt(rig, name, one.endpoint), openAt(rig, name, two.endpoint)], [3, 3]);
  });

  test('weights and another scheduler hold for the next connection', async (t) => {
    const rig = await makeRig(t);
    const [one, two] = [await TcpBackend.echo(t), await TcpBackend.echo(t)];
    const { name, port } = await rig.open('TCP', endpointsOf([one, two]));
    await rig.update(name, scheduled([one.endpoint, { ...two.endpoint, weight: 3 }], 'wrr'));
    for (let i = 0; i < 8; i++) await hold(port);
    assert.deepEqual([openAt(rig, name, one.endpoint), openAt(rig, name, two.endpoint)], [2, 6]);
    await rig.update(name, scheduled([{ ...one.endpoint, weight: 2 }, two.endpoint], 'fo'));
    for (let i = 0; i < 3; i++) await hold(port);
    assert.deepEqual([openAt(rig, name, one.endpoint), openAt(rig, name, two.endpoint)], [5, 6]);
  });
}
