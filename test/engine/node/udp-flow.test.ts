import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { test } from 'node:test';
import { COUNTER } from '../../../src/engine/core/target.ts';
import { Port, Shared } from '../../../src/engine/node/port.ts';
import { UdpFlow } from '../../../src/engine/node/udp-flow.ts';
import { UdpFlows } from '../../../src/engine/node/udp-flows.ts';
import type { Timer } from '../../../src/util/clock.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { backends, OPTIONS } from '../../compliance/data-plane/harness.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { manualRig } from './rig.ts';

const SPEC = listenSpec({ name: 'test/udp', protocol: 'UDP', address: '127.0.0.1', port: 0 });

/** Timers without a delay leave Node's loop the turn that they ask for, as with a real clock. */
class TurningClock extends ManualClock {
  override after(delayMs: number, callback: () => void): Timer {
    return delayMs > 0 ? super.after(delayMs, callback) : systemClock.after(0, callback);
  }
}

test('after a standstill datagrams that came in time are delivered, by the flows that were there', async (t) => {
  const rig = manualRig(t, { udpMaxFlows: 1000, udpMaxFlowsPerService: 1000 }, () => ['127.0.0.1'], new TurningClock());
  const backend = await UdpBackend.start(t);
  const port = await rig.plane.open(SPEC, backends([backend.endpoint]));
  const clients = await Promise.all(Array.from({ length: 300 }, () => UdpClient.connect(t, port)));
  const answered = (times: number) => clients.every(({ received }) => received.length === times);
  for (const round of [1, 2]) {
    // One task: nothing of it has been read when the time has passed.
    for (const client of clients) client.send('?');
    rig.clock.advance(400);
    await waitFor(`${round}: questions`, () => backend.arrivals.length === round * 300);
    for (const flow of backend.flows) backend.push(flow, '!');
    rig.clock.advance(400);
    await waitFor(`${round}: answers`, () => answered(round));
  }
  const { counters } = [...rig.plane.stats()][0] ?? assert.fail();
  assert.equal(counters.connections, 300);
  rig.clock.advance(250);
  await waitFor('all to end', () => [...rig.plane.stats()][0]?.counters.active === 0);
});

test('datagrams wait in order until the backend socket is connected, up to 64', async (t) => {
  const clock = new ManualClock();
  const backend = await UdpBackend.start(t);
  const nobody = (): void => assert.fail('nothing is to be reported');
  const observer = {
    clientRefused: nobody,
    clientWaits: nobody,
    dialFailed: nobody,
    ejected: nobody,
    readmitted: nobody,
    limited: nobody,
    listenerFailed: nobody,
    clientsForgotten: nobody,
  };
  const setup = { options: OPTIONS, observer, clock, random: Math.random };
  const port = new Port(SPEC, backends([backend.endpoint]), setup, new Shared(setup));
  const { address } = backend.endpoint;
  const local = createSocket('udp4');
  t.after(() => local.close());
  const from = { address, endpoint: { address, port: 9 }, localKey: 1, clientKey: 2, local };
  const target = port.picker.pick(address, 0).next() ?? assert.fail();
  const flow = new UdpFlow({ flows: new UdpFlows(port), from, target });
  flow.start();
  const sent = Array.from({ length: 66 }, (_, i) => `datagram ${i}`);
  for (const text of sent) flow.send(Buffer.from(text));
  assert.equal(port.counters[COUNTER.limited], 2);
  await waitFor('the rest to arrive', () => backend.arrivals.length === 64);
  assert.deepEqual(backend.texts, sent.slice(0, 64));
  flow.cut('proxy-idle');
  assert.equal(clock.pendingTimers, 0);
});
