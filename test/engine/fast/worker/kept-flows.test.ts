import '../../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, type TestContext, test } from 'node:test';
import { udpTimeoutMs } from '../../../../src/kernel/conntrack/udp-timeout.ts';
import { connect, SOCK_DGRAM, socket } from '../../../../src/sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../../../src/sys/socket-address.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { waitFor } from '../../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../../support/udp.ts';
import { engineRig } from './engine-rig.ts';

/*
 * A flow whose endpoint sees the client must not outlive its entry in connection tracking: the endpoint would see the
 * node, which network policies let in.
 */

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

const LOOPBACK = [127, 0, 0, 1];
/** The control message of a reply from 127.0.0.1 (`struct in_pktinfo`). */
const FROM_LOOPBACK = [
  28,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  8,
  0,
  0,
  0,
  0,
  0,
  0,
  0,
  ...LOOPBACK,
  ...LOOPBACK,
  0,
  0,
  0,
  0,
];

/** A flow that another process has begun, and whose entry lasts for `keptMs` more. */
async function adopted(t: TestContext, keptMs: number) {
  const clock = new ManualClock();
  // Its deadline is later than the end of the entry.
  const { engine, listen, command } = engineRig(t, { udpIdleTimeoutMs: 3_600_000 }, { clock });
  const backend = await UdpBackend.start(t);
  const { localPort, counters } = listen({ protocol: 'UDP', endpoints: [backend.endpoint] });
  const client = await UdpClient.connect(t, localPort);
  const { address, port } = backend.endpoint;
  const fd = must('socket', socket(familyOfText(address), SOCK_DGRAM));
  must('connect', connect(fd, encodeSocketAddress(address, port)));
  const { bytes: name } = encodeSocketAddress('127.0.0.1', client.socket.address().port);
  command({
    kind: 'adopt',
    question: 0,
    records: [
      {
        ...{ kind: 'flow', port: 1, fd, endpoint: backend.endpoint, beganAt: clock.wallNow(), hasReplied: true },
        ...{ hasRetired: false, receivedBytes: 0, sentBytes: 0, keptUntil: clock.wallNow() + keptMs },
        ...{ name: new Uint8Array(name), control: new Uint8Array(FROM_LOOPBACK) },
      },
    ],
  });
  /** After this time without anything. Returns the ports that the endpoint has seen so far. */
  const askAfter = async (ms: number) => {
    const count = backend.arrivals.length;
    await client.delivered('?');
    clock.advance(ms);
    await waitFor('the question', () => {
      engine.turn(0);
      return backend.arrivals.length > count;
    });
    return new Set(backend.arrivals.map(({ from }) => from)).size;
  };
  return { askAfter, counters };
}

test('a flow that another process has begun ends with its entry', async (t) => {
  const { askAfter, counters } = await adopted(t, 1000);
  assert.equal(await askAfter(1000), 1, 'only the new flow');
  assert.equal(counters.read().connections, 1, 'which is counted here');
});

test('a datagram makes the entry last, and a standstill that is longer ends the flow before the next one', async (t) => {
  const { askAfter, counters } = await adopted(t, 1000);
  assert.equal(await askAfter(999), 1);
  assert.equal(await askAfter(udpTimeoutMs() * 0.9 - 1), 1);
  assert.equal(counters.read().connections, 0, 'the old one goes on');
  assert.equal(await askAfter(udpTimeoutMs() * 0.9), 2);
  assert.equal(counters.read().connections, 1);
});
