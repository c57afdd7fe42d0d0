import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { DataPlaneOptions } from '../../../src/model/data-plane.ts';
import { type Endpoint, endpointName, type NamedEndpoint } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, type RigFactory } from './harness.ts';

/** A client that has asked a backend, which answers when it is told to. */
async function waiting(t: TestContext, makeRig: RigFactory, options: Partial<DataPlaneOptions> = {}) {
  const rig = await makeRig(t, options);
  const [leaving, staying] = [await UdpBackend.start(t), await UdpBackend.named(t, 'staying')];
  const { name, port } = await rig.open('UDP', [leaving.endpoint]);
  const client = await UdpClient.connect(t, port);
  client.send('?');
  const [flow] = await waitFor('the question', () => leaving.arrivals.length === 1 && leaving.flows);
  const answer = async (text: string): Promise<void> => {
    leaving.push(flow ?? 0, text);
    await waitFor(text, () => client.texts.includes(text));
  };
  const update = (endpoints: readonly NamedEndpoint[], draining?: readonly NamedEndpoint[]) =>
    rig.update(name, { ...backends(endpoints), ...(draining && { draining }) });
  return { rig, leaving, staying, name, port, client, answer, update };
}

export function udpDrainingTests(makeRig: RigFactory): void {
  test('an answer under way arrives from a draining endpoint, and the next datagram goes elsewhere', async (t) => {
    const { rig, leaving, staying, name, client, answer, update } = await waiting(t, makeRig);
    await update([staying.endpoint], [leaving.endpoint]);
    await answer('late');
    await waitFor('it to go on, for more may come', () => rig.counters(name).active === 1);
    assert.equal(await client.ask('next'), 'staying');
    await answer('later');
    assert.equal(await client.ask('again'), 'staying');
    assert.equal(staying.flows.length, 1, 'what came late has not taken the place of the new flow');
    assert.deepEqual(leaving.texts, ['?']);
    const listed: (Endpoint | undefined)[] = [];
    for await (const piece of rig.plane.connections(name)) listed.push(...piece.map(({ endpoint }) => endpoint));
    assert.deepEqual(
      listed.map((endpoint) => endpoint && endpointName(endpoint)).toSorted(),
      [leaving, staying].map(({ endpoint }) => endpointName(endpoint)).toSorted(),
    );
    assert.deepEqual(rig.events.dialFailed, []);
  });

  test('a flow of a draining endpoint ends after its time of silence', async (t) => {
    const began = performance.now();
    const { rig, leaving, staying, name, client, answer, update } = await waiting(t, makeRig, {
      udpIdleTimeoutMs: 300,
    });
    await update([staying.endpoint], [leaving.endpoint]);
    await answer('late');
    await waitFor('it to end', () => rig.counters(name).active === 0);
    assert.ok(performance.now() - began >= 295, 'not before its time');
    assert.equal(await client.ask('next'), 'staying');
  });

  test('a flow ends at once when its endpoint goes for good, and its client’s new flow stays', async (t) => {
    const { rig, leaving, staying, name, client, update } = await waiting(t, makeRig);
    await update([staying.endpoint], [leaving.endpoint]);
    assert.equal(await client.ask('next'), 'staying');
    await waitFor('both to count', () => rig.counters(name).active === 2);
    update([staying.endpoint]);
    await waitFor('it to end', () => rig.counters(name).active === 1);
    assert.equal(await client.ask('again'), 'staying');
    assert.equal(staying.flows.length, 1);
  });

  test('an endpoint that comes back still answers what it was asked before', async (t) => {
    const { rig, leaving, staying, name, client, answer, update } = await waiting(t, makeRig);
    await update([staying.endpoint], [leaving.endpoint]);
    assert.equal(await client.ask('next'), 'staying');
    await update([{ ...leaving.endpoint }, staying.endpoint]);
    await answer('late');
    assert.equal(await client.ask('again'), 'staying');
    update([]);
    await waitFor('both to end', () => rig.counters(name).active === 0);
  });

  for (const bound of ['udpMaxFlowsPerService', 'udpMaxFlows'] as const) {
    test(`at ${bound} a flow of a draining endpoint makes room for a new one`, async (t) => {
      const { rig, leaving, staying, name, client, update } = await waiting(t, makeRig, { [bound]: 1 });
      await update([staying.endpoint], [leaving.endpoint]);
      assert.equal(await client.ask('next'), 'staying');
      await waitFor('the old one to end', () => rig.counters(name).active === 1);
      const { limited, connections } = rig.counters(name);
      assert.deepEqual({ limited, connections }, { limited: 0, connections: 2 });
    });
  }
}
