import assert from 'node:assert/strict';
import { openSync } from 'node:fs';
import { test } from 'node:test';
import { CounterMemory, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import type { Answer, Command, Questions, Report } from '../../../../src/engine/fast/worker/protocol.ts';
import { isSession } from '../../../../src/engine/fast/worker/session.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { waitFor } from '../../../netns/wait.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../../support/tcp.ts';
import { engineRig } from './engine-rig.ts';

function answer(question: number, given: Answer): Report {
  return { kind: 'answer', question, answer: given };
}

test('the worker reports that it opened a port, that it cannot watch a descriptor, and that it closed a port', (t) => {
  const { owners, reports, listen, open, command } = engineRig(t);
  // epoll takes no regular files.
  const file = openSync(import.meta.filename, 'r');
  t.after(() => close(file));
  open(9, file);
  const { fd } = listen();
  command({ kind: 'close', question: 2, port: 1 });
  const refused = answer(0, { err: 'epoll_ctl: EPERM (operation not permitted)' });
  assert.deepEqual(reports, [{ kind: 'ready' }, refused, answer(0, {}), answer(2, {})]);
  assert.equal(owners[fd], 0, 'the worker never owns a descriptor that it borrows');
});

test('the worker answers commands and questions about ports that are not open', (t) => {
  const { engine, reports, command } = engineRig(t);
  const counters = new PortCounters(new CounterMemory());
  command({ kind: 'update', port: 9, backends: counters.follow({ endpoints: [], affinity: { type: 'None' } }) });
  command({ kind: 'close', question: 1, port: 9 }, { kind: 'peek', question: 2, port: 9, client: '192.0.2.1' });
  command({ kind: 'list', question: 3, port: 9, list: 1 });
  engine.turn(100);
  const expected = [answer(1, {}), answer(2, { endpoint: undefined }), answer(3, { connections: [], hasMore: false })];
  assert.deepEqual(reports.slice(1), expected);
});

test('the worker answers a question for a turn after a whole turn, in which it accepts waiting clients', async (t) => {
  const { engine, reports, listen, command } = engineRig(t);
  const { localPort, counters } = listen({ endpoints: [(await TcpBackend.echo(t)).endpoint] });
  command({ kind: 'freeze', question: 1 });
  const client = await connectTcp(localPort);
  t.after(() => client.reset());
  command({ kind: 'thaw' }, { kind: 'turn', question: 2 });
  assert.deepEqual(reports.at(-1), answer(1, { pickers: [], records: [] }));
  engine.turn(100);
  assert.deepEqual(reports.at(-1), answer(2, {}));
  assert.equal(counters.read().active, 1);
});

test('the worker obeys commands in order, also when closing a port accepts its last clients', async (t) => {
  const { engine, reports, meanwhile, listen, post, command } = engineRig(t);
  const [one, two, three] = [await TcpBackend.echo(t), await TcpBackend.echo(t), await TcpBackend.echo(t)];
  const closing = listen({ endpoints: [one.endpoint] });
  const { localPort, counters } = listen({}, 2);
  const update = (...backends: readonly TcpBackend[]): Command => {
    const endpoints = backends.map(({ endpoint }) => endpoint);
    return { kind: 'update', port: 2, backends: counters.follow({ endpoints, affinity: { type: 'None' } }) };
  };
  const waiting = await connectTcp(closing.localPort);
  t.after(() => waiting.reset());
  const [older, newer] = [update(one), update(two)];
  meanwhile.push(() => post(newer));
  command({ kind: 'close', question: 1, port: 1 }, older);
  command({ kind: 'peek', question: 2, port: 2, client: '127.0.0.1' });
  assert.deepEqual(reports.at(-1), answer(2, { endpoint: two.endpoint }));

  // Both threads still agree on which endpoints the worker knows.
  command(update(two, three));
  const clients = [await connectTcp(localPort), await connectTcp(localPort)];
  for (const client of clients) t.after(() => client.reset());
  await waitFor('both clients to be connected', () => {
    engine.turn(10);
    return counters.readEndpoints().every((each) => each.counters.connections === 1);
  });
});

test('a port accepts one client per turn, and twice as many in each further turn while there are more', async (t) => {
  const { engine, listen, command } = engineRig(t);
  const { localPort, counters } = listen({ endpoints: [(await TcpBackend.echo(t)).endpoint] });
  command({ kind: 'freeze', question: 1 });
  const clients = await Promise.all(Array.from({ length: 200 }, () => connectTcp(localPort)));
  t.after(() => {
    for (const client of clients) client.reset();
  });
  command({ kind: 'thaw' });
  const accepted = [counters.read().connections];
  for (let turn = 0; turn < 9; turn++) {
    engine.turn(0);
    accepted.push(counters.read().connections);
  }
  const steps = accepted.slice(1).map((count, i) => count - (accepted[i] ?? 0));
  assert.deepEqual(steps, [1, 2, 4, 8, 16, 32, 64, 64, 9]);
});

test('a closing port accepts all clients that have connected, a few per turn', async (t) => {
  const { engine, reports, listen, command } = engineRig(t);
  const { localPort, counters } = listen({ endpoints: [(await TcpBackend.echo(t)).endpoint] });
  command({ kind: 'freeze', question: 1 });
  const clients = await Promise.all(Array.from({ length: 300 }, () => connectTcp(localPort)));
  t.after(() => {
    for (const client of clients) client.reset();
  });
  command({ kind: 'thaw' }, { kind: 'close', question: 2, port: 1 });
  let most = counters.read().connections;
  const isClosed = () => reports.some((report) => report.kind === 'answer' && report.question === 2);
  for (let turns = 0; !isClosed(); turns++) {
    assert.ok(turns < 100, 'the port is still open after 100 turns');
    const before = counters.read().connections;
    engine.turn(0);
    most = Math.max(most, counters.read().connections - before);
  }
  assert.ok(most <= 64, `the worker accepted ${most} clients in one turn`);
  assert.equal(counters.read().connections, 300);
});

test('an exception ends its connection alone; more than a few in a second end the worker', async (t) => {
  const { engine, reports, listen } = engineRig(t, {}, { clock: new ManualClock() });
  const backend = await TcpBackend.echo(t);
  const { localPort, counters } = listen({ endpoints: [backend.endpoint] });
  const clients = await Promise.all(Array.from({ length: 6 }, () => connectTcp(localPort)));
  for (const client of clients) t.after(() => client.reset());
  const echoed = (text: string, which: readonly TcpPeer[]) =>
    waitFor(`${text} at ${which.length}`, () => {
      engine.turn(0);
      return which.every((client) => client.text === text);
    });
  for (const client of clients) client.send('a');
  await echoed('a', clients);
  const sessions = new Set(engine.loop.handlers.filter(isSession));
  assert.equal(sessions.size, 6);
  const [last, ...others] = clients as [TcpPeer, ...TcpPeer[]];
  for (const session of sessions) {
    if (session.describe()?.client.port === last.socket.localPort) continue;
    session.onEvents = () => {
      throw new Error('a test');
    };
  }
  let thrown: unknown;
  const untilThrown = (what: string, isDone: () => boolean) =>
    waitFor(what, () => {
      try {
        engine.turn(0);
      } catch (err) {
        thrown = err;
      }
      return isDone();
    });
  const faulty = () => reports.filter(({ kind }) => kind === 'fault');
  for (const client of others) client.send('b');
  await untilThrown('the worker to give up', () => thrown !== undefined);
  assert.match((thrown as Error).message, /a test/);
  assert.match(JSON.stringify(faulty()[0]), /a test.*engine.test.ts/, 'with the stack');
  assert.equal(faulty().length, 4);
  assert.equal(counters.read().active, 2);
  last.send('b');
  await echoed('ab', [last]);
});

test('what a slow reader has not taken goes along with a frozen connection without a copy, and stays for a thaw', async (t) => {
  const { engine, reports, descriptors, listen, command } = engineRig(t);
  // Of the rest of the program: there are none for pipes.
  descriptors.take(0.9 * (1 << 20));
  const sent = 16 << 20;
  const backend = await TcpBackend.start(t, (peer) => peer.send(Buffer.alloc(sent, 'x')));
  const { localPort } = listen({ endpoints: [backend.endpoint] });
  const client = await connectTcp(localPort);
  t.after(() => client.reset());
  client.socket.pause();
  const rest = await waitFor('bytes that nobody takes', () => {
    engine.turn(10);
    command({ kind: 'freeze', question: 1 });
    command({ kind: 'give', question: 2 });
    const given = reports.at(-1) as { readonly answer: Questions['give']['gets'] };
    command({ kind: 'thaw' });
    const [record] = given.answer.records;
    return record?.kind === 'established' && record.sides[1].rest;
  });
  assert.ok(rest.every((byte) => byte === 'x'.charCodeAt(0)));
  client.socket.resume();
  await waitFor('all of them', () => {
    engine.turn(10);
    return client.receivedBytes === sent;
  });
});

test('of a flood of refused clients, a port reports 64 at once and then ten a second, and counts all', async (t) => {
  const clock = new ManualClock();
  const { engine, reports, listen } = engineRig(t, {}, { clock });
  const { localPort, counters } = listen();
  let refused = 0;
  const reportsOf = async (clients: number) => {
    reports.length = 0;
    refused += clients;
    for (const client of await Promise.all(Array.from({ length: clients }, () => connectTcp(localPort)))) {
      t.after(() => client.reset());
    }
    await waitFor('all to be refused', () => {
      engine.turn(10);
      return counters.read().noEndpoints === refused;
    });
    return reports.filter(({ kind }) => kind === 'clientRefused').length;
  };
  assert.equal(await reportsOf(100), 64);
  clock.advance(1_000);
  assert.equal(await reportsOf(30), 10);
  clock.advance(3_600_000);
  assert.equal(await reportsOf(100), 64, 'after a quiet hour no more than at first');
});
