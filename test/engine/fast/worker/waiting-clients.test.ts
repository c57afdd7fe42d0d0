import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { shareTable } from '../../../../src/engine/core/shares.ts';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { CounterMemory, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import type { FrozenWorker } from '../../../../src/engine/fast/worker/protocol.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { waitFor } from '../../../netns/wait.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { UdpBackend, UdpClient } from '../../../support/udp.ts';
import { engineRig } from './engine-rig.ts';

/** A worker that carries flows of Service port 1, whose home it cannot reach. */
function carrier(t: TestContext) {
  const rig = engineRig(t);
  const { fd, localPort } = openListenSocket(
    listenSpec({ name: 'a/1', protocol: 'UDP', address: '127.0.0.1', port: 0 }),
  );
  t.after(() => close(fd));
  const counters = new PortCounters(new CounterMemory());
  rig.command({
    kind: 'share',
    question: 0,
    port: 1,
    name: 'a/1',
    protocol: 'UDP',
    home: 1,
    fds: [fd],
    backends: counters.follow({ endpoints: [], affinity: { type: 'None' } }),
    counters: counters.shared,
    taken: shareTable(2),
  });
  return { ...rig, localPort, counters };
}

test('what waits for a flow goes to a successor, in order, and begins the flow there', async (t) => {
  const { engine, localPort, command, reports } = carrier(t);
  const client = await UdpClient.connect(t, localPort);
  for (const text of ['one', 'two', 'three']) await client.delivered(text);
  engine.turn(100);
  command({ kind: 'freeze', question: 7 });
  const answers = reports.flatMap((each) => (each.kind === 'answer' && each.question === 7 ? each.answer : []));
  const { records } = answers[0] as FrozenWorker;
  const datagrams = records.flatMap((each) => (each.kind === 'waiting' ? each.datagrams : []));
  assert.deepEqual(
    datagrams.map((datagram) => Buffer.from(datagram).toString()),
    ['one', 'two', 'three'],
  );

  const backend = await UdpBackend.echo(t);
  const successor = engineRig(t);
  const { counters } = successor.listen({ protocol: 'UDP', endpoints: [backend.endpoint] });
  successor.command({ kind: 'adopt', question: 0, records });
  await waitFor('the datagrams', () => {
    successor.engine.turn(10);
    return backend.arrivals.length === 3;
  });
  assert.deepEqual(backend.texts, ['one', 'two', 'three']);
  assert.equal(backend.flows.length, 1);
  assert.deepEqual([counters.read().connections, counters.read().receivedBytes], [1, 11]);
});

test('a worker keeps 1 MiB for clients that wait, and drops and counts the rest', async (t) => {
  const { engine, localPort, command, reports, counters } = carrier(t);
  const client = await UdpClient.connect(t, localPort);
  const large = 'x'.repeat(60_000);
  for (let i = 0; i < 20; i++) {
    await client.delivered(large);
    engine.turn(100);
  }
  // 17 with the objects around them are less than 1 MiB.
  assert.equal(counters.read().limited, 3);
  command({ kind: 'unshare', question: 8, port: 1 });
  assert.ok(reports.some((each) => each.kind === 'answer' && each.question === 8));
});
