import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv } from '../../../../src/sys/socket.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { RawUdpEndpoint, rawUdpClient } from '../../../support/raw-udp.ts';
import { engineRig } from './engine-rig.ts';

test('a busy UDP port is shared with other workers for flows that last, not for ports that soon ask again', (t) => {
  const clock = new ManualClock();
  const { engine, listen, reports } = engineRig(t, {}, { clock, spread: 'clients' });
  const endpoint = new RawUdpEndpoint(t);
  const { localPort } = listen({ protocol: 'UDP', endpoints: [endpoint.endpoint] });
  const [first, second] = [rawUdpClient(t, localPort), rawUdpClient(t, localPort)];
  const ask = (client: typeof first) => {
    client.send('question');
    for (let i = 0; i < 4; i++) engine.turn(0);
    endpoint.question().answer('answer');
    for (let i = 0; i < 4; i++) engine.turn(0);
    assert.equal(recv(client.fd, new Memory(100), 0, 100), 'answer'.length);
  };
  const isShared = () => reports.some(({ kind }) => kind === 'busy');
  ask(first);
  ask(second);
  clock.advance(200);
  ask(first);
  ask(second);
  assert.ok(!isShared());
  for (let i = 0; i < 16; i++) ask(first);
  assert.ok(isShared());
  // Nobody has answered, as when there were no descriptors.
  const asked = () => reports.filter(({ kind }) => kind === 'busy').length;
  const before = asked();
  clock.advance(10_000);
  ask(first);
  assert.equal(asked(), before + 1, 'it asks again');
});
