import assert from 'node:assert/strict';
import { openSync } from 'node:fs';
import { test } from 'node:test';
import { type ListenSocket, openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { CounterMemory, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import type { Answer, Command, Report } from '../../../../src/engine/fast/worker/protocol.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { waitFor } from '../../../netns/wait.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { connectTcp, TcpBackend } from '../../../support/tcp.ts';
import { engineRig } from './engine-rig.ts';

function answer(question: number, given: Answer): Report {
  return { kind: 'answer', question, answer: given };
}

test('a port is opened and given back, and both are reported', (t) => {
  const { owners, reports, open, tell } = engineRig(t);
  const { fd } = openListenSocket(listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(fd));
  open(1, fd);
  tell({ kind: 'close', question: 2, port: 1 });
  assert.deepEqual(reports, [{ kind: 'ready' }, answer(0, {}), answer(2, {})]);
  assert.equal(owners[fd], 0, 'a lent descriptor is never the worker’s');
});

test('a descriptor that cannot be watched is reported as such, and the worker goes on', (t) => {
  const { reports, open } = engineRig(t);
  // epoll takes no regular files.
  const file = openSync(import.meta.filename, 'r');
  t.after(() => close(file));
  open(1, file);
  assert.deepEqual(reports.slice(1), [answer(0, { err: 'epoll_ctl: EPERM (operation not permitted)' })]);
  const { fd } = openListenSocket(listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(fd));
  open(2, fd);
  assert.deepEqual(reports.at(-1), answer(0, {}));
});

test('commands for ports that are not open are answered', (t) => {
  const { reports, tell } = engineRig(t);
  tell({ kind: 'close', question: 3, port: 9 });
  const counters = new PortCounters(new CounterMemory());
  tell({ kind: 'update', port: 9, backends: counters.follow({ endpoints: [], affinity: { type: 'None' } }) });
  assert.deepEqual(reports.slice(1), [answer(3, {})]);
});

test('questions about ports that are not open are answered, with nothing', (t) => {
  const { engine, reports, tell } = engineRig(t);
  tell({ kind: 'peek', question: 1, port: 9, client: '192.0.2.1' });
  tell({ kind: 'list', question: 2, port: 9, from: 0 });
  engine.turn(100);
  assert.deepEqual(reports.slice(1), [answer(1, { endpoint: undefined }), answer(2, { connections: [] })]);
});

test('a question for a turn is answered after a whole turn, in which waiting clients were accepted', async (t) => {
  const { engine, reports, open, tell } = engineRig(t);
  const { fd, localPort } = openListenSocket(
    listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }),
  );
  t.after(() => close(fd));
  const counters = open(1, fd, { endpoints: [(await TcpBackend.echo(t)).endpoint] });
  tell({ kind: 'freeze', question: 1 });
  const client = await connectTcp(localPort);
  t.after(() => client.reset());
  tell({ kind: 'thaw' }, { kind: 'turn', question: 2 });
  assert.deepEqual(reports.at(-1), answer(1, { pickers: [], records: [] }));
  engine.turn(100);
  assert.deepEqual(reports.at(-1), answer(2, {}));
  assert.equal(counters.read().active, 1);
});

test('commands are obeyed in the order in which they were sent, also when closing a port accepts its last clients', async (t) => {
  const { engine, reports, meanwhile, open, post, tell } = engineRig(t);
  const [one, two, three] = [
    await TcpBackend.named(t, 'one'),
    await TcpBackend.named(t, 'two'),
    await TcpBackend.named(t, 'three'),
  ];
  const sockets = [1, 2].map((port) => {
    const spec = listenSpec({ name: `a/${port}`, protocol: 'TCP', address: '127.0.0.1', port: 0 });
    const socket = openListenSocket(spec);
    t.after(() => close(socket.fd));
    return socket;
  });
  const [closing, staying] = sockets as [ListenSocket, ListenSocket];
  open(1, closing.fd, { endpoints: [one.endpoint] });
  const counters = open(2, staying.fd);
  const update = (...backends: readonly TcpBackend[]): Command => {
    const endpoints = backends.map(({ endpoint }) => endpoint);
    return { kind: 'update', port: 2, backends: counters.follow({ endpoints, affinity: { type: 'None' } }) };
  };
  const waiting = await connectTcp(closing.localPort);
  t.after(() => waiting.reset());
  const [older, newer] = [update(one), update(two)];
  meanwhile.push(() => post(newer));
  tell({ kind: 'close', question: 1, port: 1 }, older);
  tell({ kind: 'peek', question: 2, port: 2, client: '127.0.0.1' });
  assert.deepEqual(reports.at(-1), answer(2, { endpoint: two.endpoint }));

  // Both sides still agree on which endpoints the worker knows.
  tell(update(two, three));
  const clients = [await connectTcp(staying.localPort), await connectTcp(staying.localPort)];
  for (const client of clients) t.after(() => client.reset());
  await waitFor('both clients to be connected', () => {
    engine.turn(10);
    return counters.readEndpoints().every((each) => each.counters.connections === 1);
  });
});

test('a closing port accepts all clients that have connected, a few per turn', async (t) => {
  const { engine, reports, open, tell } = engineRig(t);
  const { fd, localPort } = openListenSocket(
    listenSpec({ name: 'a/b', protocol: 'TCP', address: '127.0.0.1', port: 0 }),
  );
  t.after(() => close(fd));
  const counters = open(1, fd, { endpoints: [(await TcpBackend.echo(t)).endpoint] });
  tell({ kind: 'freeze', question: 1 });
  const clients = await Promise.all(Array.from({ length: 300 }, () => connectTcp(localPort)));
  t.after(() => {
    for (const client of clients) client.reset();
  });
  tell({ kind: 'thaw' }, { kind: 'close', question: 2, port: 1 });
  let most = counters.read().connections;
  const isClosed = () => reports.some((report) => report.kind === 'answer' && report.question === 2);
  for (let turns = 0; !isClosed(); turns++) {
    assert.ok(turns < 100, 'it was not closed within 100 turns');
    const before = counters.read().connections;
    engine.turn(0);
    most = Math.max(most, counters.read().connections - before);
  }
  assert.ok(most <= 64, `${most} were let in within one turn`);
  assert.equal(counters.read().connections, 300);
});
