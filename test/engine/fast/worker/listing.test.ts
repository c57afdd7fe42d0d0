import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type ListenSocket, openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import type { ListedPage, Questions } from '../../../../src/engine/fast/worker/protocol.ts';
import { descriptorLimit } from '../../../../src/kernel/descriptor-limit.ts';
import { close, waitReadable } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { AF_INET, bindTo, connect, SOCK_DGRAM, send, socket } from '../../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../../src/sys/socket-address.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { endpointAt } from '../../../compliance/data-plane/harness.ts';
import { PATIENCE_MS } from '../../../netns/wait.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { engineRig } from './engine-rig.ts';

/** As far as there are descriptors for so many: one each. */
const FLOWS = Math.min(20_000, (descriptorLimit() ?? 1024) - 500);
const CLIENTS_PER_TURN = 50;
const byte = new Memory(1);

function udpSocket(t: TestContext) {
  const spec = listenSpec({ name: 'a/b', protocol: 'UDP', address: '127.0.0.1', port: 0 });
  const listening = openListenSocket(spec);
  t.after(() => close(listening.fd));
  return listening;
}

let lastClient = 0;

/** Each by a client with an address of its own, which it returns; without a turn of Node's loop. */
function sendOne(port: number): string {
  const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
  const number = ++lastClient;
  const client = `127.1.${number >> 8}.${number & 255}`;
  must('bind', bindTo(fd, encodeSocketAddress(client, 0)));
  must('connect', connect(fd, encodeSocketAddress('127.0.0.1', port)));
  must('send', send(fd, byte, 0, 1));
  close(fd);
  return client;
}

/** A worker with so many flows at port 1, and none at port 2. */
function busyRig(t: TestContext, flows: number) {
  // None ends while the others begin, however long that takes.
  const lasting = { udpIdleTimeoutMs: 3_600_000, udpFirstReplyTimeoutMs: 3_600_000 };
  const rig = engineRig(t, { ...lasting, udpMaxFlowsPerService: 1e6, udpMaxFlows: 1e6 });
  const [busy, idle, backend] = [udpSocket(t), udpSocket(t), udpSocket(t)];
  const endpoints = [endpointAt('127.0.0.1', backend.localPort)];
  const counters = rig.open(1, busy.fd, { protocol: 'UDP', endpoints });
  rig.open(2, idle.fd, { protocol: 'UDP', endpoints });
  const clients: string[] = [];
  while (clients.length < flows) {
    for (let i = Math.min(CLIENTS_PER_TURN, flows - clients.length); i > 0; i--) clients.push(sendOne(busy.localPort));
    while (counters.open < clients.length) rig.engine.turn(100);
  }
  /** The client is there when this returns: the kernel may take its time. */
  const visit = ({ fd, localPort }: ListenSocket): string => {
    const client = sendOne(localPort);
    assert.equal(waitReadable(fd, PATIENCE_MS), 1);
    return client;
  };
  const taken = (): readonly (ListedPage & { readonly question: number })[] =>
    rig.reports.splice(0).flatMap((report) => {
      const isPage = report.kind === 'answer' && 'connections' in report.answer;
      return isPage ? [{ ...(report.answer as ListedPage), question: report.question }] : [];
    });
  taken();
  return {
    ...rig,
    clients,
    counters,
    taken,
    visit: () => visit(busy),
    visitIdle: () => visit(idle),
  };
}

test(`between two pages of a list of ${FLOWS} a worker serves new clients`, (t) => {
  const { engine, command, taken, visit, counters, clients } = busyRig(t, FLOWS);
  const listed: string[] = [];
  let pieces = 0;
  for (let isOver = false; !isOver; pieces++) {
    command({ kind: 'list', question: pieces, port: 1, list: 1 });
    visit();
    engine.turn(100);
    const reports = taken();
    assert.equal(reports.length, 1);
    assert.equal(counters.read().connections, FLOWS + pieces + 1, 'the client has been served in the same turn');
    const { connections = [], question, hasMore } = reports[0] ?? {};
    assert.equal(question, pieces);
    assert.ok(connections.length <= 128, `${connections.length} in a piece`);
    listed.push(...connections.map(({ client }) => client.address));
    isOver = hasMore !== true;
  }
  const found = new Set(listed);
  assert.equal(found.size, listed.length, 'none twice');
  assert.ok(
    clients.every((client) => found.has(client)),
    'all that were there',
  );
  assert.ok(pieces >= FLOWS / 128);
});

test('however many lists are asked for, there is one page per turn, and new clients are served', (t) => {
  const { engine, command, taken, visit, counters } = busyRig(t, 300);
  const questions = [1, 2, 3, 4, 5];
  command(...questions.map((question) => ({ kind: 'list', question, port: 1, list: question }) as const));
  assert.deepEqual(taken(), [], 'what came with the command comes first, too');
  for (const question of questions) {
    visit();
    engine.turn(100);
    assert.deepEqual(
      taken().map((report) => report.question),
      [question],
    );
    assert.equal(counters.read().connections, 300 + question);
  }
});

test('a port’s few connections among many are on the first page', (t) => {
  const { engine, command, taken, visitIdle } = busyRig(t, 5000);
  const client = visitIdle();
  engine.turn(100);
  command({ kind: 'list', question: 1, port: 2, list: 1 });
  engine.turn(100);
  assert.deepEqual(
    taken().map(({ connections, hasMore }) => [connections.map((each) => each.client.address), hasMore]),
    [[[client], false]],
  );
});

test('a list that is given up does not go on', (t) => {
  const { engine, command, taken } = busyRig(t, 300);
  const page = (): number | undefined => {
    command({ kind: 'list', question: 1, port: 1, list: 7 });
    engine.turn(100);
    return taken()[0]?.connections.length;
  };
  assert.deepEqual([page(), page()], [128, 128]);
  command({ kind: 'unlist', list: 7 });
  assert.deepEqual([page(), page(), page()], [128, 128, 44], 'from its beginning');
});

test('a frozen worker describes what it has in pieces, each connection and flow once', (t) => {
  const { command, reports, clients } = busyRig(t, 600);
  command({ kind: 'freeze', question: 1 });
  const give = () => {
    command({ kind: 'give', question: 2 });
    return (reports.at(-1) as { readonly answer: Questions['give']['gets'] }).answer.records;
  };
  const pieces = [give(), give(), give(), give()];
  assert.deepEqual(
    pieces.map(({ length }) => length),
    [256, 256, 88, 0],
  );
  assert.equal(new Set(pieces.flat().map((record) => 'fd' in record && record.fd)).size, clients.length);
});
