import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../../src/sys/socket-address.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { waitFor } from '../../../netns/wait.ts';
import { RawUdpEndpoint, rawUdpClient } from '../../../support/raw-udp.ts';
import { UdpBackend } from '../../../support/udp.ts';
import { engineRig } from './engine-rig.ts';

test('datagrams of one read get past several endpoints that refuse', async (t) => {
  const { engine, listen } = engineRig(t);
  const alive = await UdpBackend.start(t);
  // Connected to itself, so it refuses datagrams of others.
  const refusing = Array.from({ length: 3 }, () => {
    const dead = new RawUdpEndpoint(t);
    must('connect', connect(dead.fd, encodeSocketAddress(dead.endpoint.address, dead.endpoint.port)));
    return dead.endpoint;
  });
  const { localPort, counters } = listen({ protocol: 'UDP', endpoints: [...refusing, alive.endpoint] });
  const client = rawUdpClient(t, localPort);
  // The kernel sends no longer one together with a shorter one before it.
  for (const text of ['1', '22']) client.send(text);
  await waitFor('both', () => {
    engine.turn(10);
    return alive.arrivals.length === 2;
  });
  assert.deepEqual(
    alive.arrivals.map(({ datagram }) => String(datagram)),
    ['1', '22'],
  );
  assert.equal(counters.read().limited, 0);
});
