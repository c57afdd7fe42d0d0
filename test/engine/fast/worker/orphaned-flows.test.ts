import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { DatagramInbox } from '../../../../src/sys/datagram-inbox.ts';
import { close, waitReadable } from '../../../../src/sys/descriptor.ts';
import { AF_INET, connect, SOCK_DGRAM, socket } from '../../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../../src/sys/socket-address.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { RawUdpEndpoint, rawUdpClient } from '../../../support/raw-udp.ts';
import { engineRig } from './engine-rig.ts';

test('a flow whose home died before it arrived ends like any other, and its socket with it', (t) => {
  const clock = new ManualClock();
  const { engine, owners, home, command } = engineRig(t, { udpIdleTimeoutMs: 300 }, { clock });
  const listener = openListenSocket(listenSpec({ name: 'a/7', protocol: 'UDP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(listener.fd));
  rawUdpClient(t, listener.localPort).send('for the way back');
  const inbox = new DatagramInbox(1);
  assert.equal(waitReadable(listener.fd, 10_000), 1);
  assert.equal(inbox.receive(listener.fd), 1);
  const path = inbox.replyPath(0);
  const bytes = (words: Int32Array) => new Uint8Array(words.slice().buffer);
  const { endpoint } = new RawUdpEndpoint(t);
  const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
  must('connect', connect(fd, encodeSocketAddress(endpoint.address, endpoint.port)));
  const record = {
    kind: 'flow' as const,
    port: 7,
    fd,
    endpoint,
    hasReplied: true,
    hasRetired: false,
    beganAt: clock.wallNow(),
    receivedBytes: 0,
    sentBytes: 0,
    name: bytes(path.name),
    control: bytes(path.control),
  };

  const { counters, tell } = home(7, listener.fd);
  const update = (backends: Parameters<typeof counters.follow>[0]) =>
    command({ kind: 'update', port: 7, backends: counters.follow(backends) });
  update({ endpoints: [endpoint], affinity: { type: 'None' } });
  command({ kind: 'hold', question: 1 });
  tell({ kind: 'carry', id: 1, record });
  command({ kind: 'unlink', question: 2, worker: 1 });
  command({ kind: 'thaw' });
  assert.equal(counters.read().active, 1);
  assert.equal(owners[fd], 1);
  // It would go home now.
  update({ endpoints: [], draining: [endpoint], affinity: { type: 'None' } });
  clock.advance(1000);
  for (let i = 0; i < 4; i++) engine.turn(0);
  assert.equal(counters.read().active, 0);
  // Its socket may have been kept for another flow, for a second.
  clock.advance(2000);
  for (let i = 0; i < 4; i++) engine.turn(0);
  assert.equal(owners[fd], 0);
});
