import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { openFlowSocket, openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { DatagramInbox } from '../../../../src/sys/datagram-inbox.ts';
import { close, waitReadable } from '../../../../src/sys/descriptor.ts';
import { AF_INET, connect, SOCK_DGRAM, socket } from '../../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../../src/sys/socket-address.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { RawUdpEndpoint, rawUdpClient } from '../../../support/raw-udp.ts';
import { engineRig } from './engine-rig.ts';

/** A worker that carries flows of Service port 7, and a flow of it on its way there. */
function carrier(t: TestContext) {
  const clock = new ManualClock();
  const rig = engineRig(t, { udpIdleTimeoutMs: 300 }, { clock });
  const listener = openListenSocket(listenSpec({ name: 'a/7', protocol: 'UDP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(listener.fd));
  const client = rawUdpClient(t, listener.localPort);
  client.send('for the way back');
  const inbox = new DatagramInbox(4);
  assert.equal(waitReadable(listener.fd, 10_000), 1);
  assert.equal(inbox.receive(listener.fd), 1);
  const path = inbox.replyPath(0);
  const bytes = (words: Int32Array) => new Uint8Array(words.slice().buffer);
  const backend = new RawUdpEndpoint(t);
  const { endpoint } = backend;
  const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
  must('connect', connect(fd, encodeSocketAddress(endpoint.address, endpoint.port)));
  const ownFd = openFlowSocket(listener.fd, path);
  const record = {
    kind: 'flow' as const,
    port: 7,
    fd,
    ownFd,
    endpoint,
    hasReplied: true,
    hasRetired: false,
    beganAt: clock.wallNow(),
    receivedBytes: 0,
    sentBytes: 0,
    name: bytes(path.name),
    control: bytes(path.control),
  };
  const home = rig.home(7, listener.fd);
  const update = (backends: Parameters<typeof home.counters.follow>[0]) =>
    rig.command({ kind: 'update', port: 7, backends: home.counters.follow(backends) });
  update({ endpoints: [endpoint], affinity: { type: 'None' } });
  const turns = () => {
    for (let i = 0; i < 4; i++) rig.engine.turn(0);
  };
  return { ...rig, ...home, clock, listener, client, backend, record, update, turns };
}

test('a flow whose home died before it arrived ends like any other, and its sockets with it', (t) => {
  const { clock, command, counters, owners, record, tell, update, turns } = carrier(t);
  command({ kind: 'hold', question: 1 });
  tell({ kind: 'carry', id: 1, record });
  command({ kind: 'unlink', question: 2, worker: 1 });
  command({ kind: 'thaw' });
  assert.equal(counters.read().active, 1);
  assert.deepEqual([owners[record.fd], owners[record.ownFd]], [1, 1]);
  update({ endpoints: [], draining: [record.endpoint], affinity: { type: 'None' } });
  clock.advance(1000);
  turns();
  assert.equal(counters.read().active, 0);
  // One of them may have been kept for another flow, for a second.
  clock.advance(2000);
  turns();
  assert.deepEqual([owners[record.fd], owners[record.ownFd]], [0, 0]);
});

test('a flow takes what came to its own socket before it moved, in order', (t) => {
  const { backend, client, record, tell, turns } = carrier(t);
  for (const text of ['one', 'two', 'three']) client.send(text);
  assert.equal(waitReadable(record.ownFd, 10_000), 1);
  tell({ kind: 'carry', id: 1, record });
  turns();
  turns();
  assert.deepEqual(
    [1, 2, 3].map(() => backend.question().text),
    ['one', 'two', 'three'],
  );
});

test('what waits for a flow that gets no more goes to its home, and what comes later to the listener', (t) => {
  const { client, listener, owners, record, tell, told, turns, update } = carrier(t);
  update({ endpoints: [], draining: [record.endpoint], affinity: { type: 'None' } });
  for (const text of ['one', 'two']) client.send(text);
  assert.equal(waitReadable(record.ownFd, 10_000), 1);
  tell({ kind: 'carry', id: 1, record });
  turns();
  const messages = told() ?? [];
  const sent = messages.flatMap((each) => (each.kind === 'datagrams' ? each.record.datagrams : []));
  assert.deepEqual(
    sent.map(String),
    ['one', 'two'].map((text) => String(Buffer.from(text).join())),
  );
  assert.deepEqual([owners[record.fd], owners[record.ownFd]], [1, 0], 'it still passes on late answers');
  client.send('three');
  assert.equal(waitReadable(listener.fd, 10_000), 1);
});
