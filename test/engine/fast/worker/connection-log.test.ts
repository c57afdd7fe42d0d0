import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadlines } from '../../../../src/engine/core/deadlines.ts';
import { ConnectionLog, MAX_UNTAKEN } from '../../../../src/engine/fast/worker/connection-log.ts';
import type { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { type Report, STATUS, STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import type { ConnectionEntry } from '../../../../src/model/connection-log.ts';
import { entry } from '../../../operate/connection-log/entries.ts';

type Entries = Extract<Report, { readonly kind: 'entries' }>;

function rig() {
  const loop = { chores: new Deadlines(), nowMs: 0 };
  const status = new Int32Array(new SharedArrayBuffer(STATUS_WORDS * 4));
  const reports: Entries[] = [];
  const log = new ConnectionLog(loop as unknown as EventLoop, status, (report) => reports.push(report as Entries));
  const pass = (ms: number) => {
    loop.nowMs += ms;
    loop.chores.expire(loop.nowMs);
  };
  const told = () => reports.flatMap(({ entries }) => entries).length;
  return { status, reports, pass, told, log };
}

const numbered = (count: number): ConnectionEntry[] =>
  Array.from({ length: count }, (_, i) => entry({ receivedBytes: i }));

test('entries leave together, some milliseconds later or when there are many', () => {
  const { log, pass, reports } = rig();
  const entries = numbered(3);
  for (const each of entries) log.add(each);
  pass(19);
  assert.equal(reports.length, 0);
  pass(1);
  assert.deepEqual(reports, [{ kind: 'entries', entries, lost: 0 }]);
  for (const each of numbered(256)) log.add(each);
  assert.deepEqual([reports.length, reports[1]?.entries.length], [2, 256]);
  pass(20);
  assert.equal(reports.length, 2, 'nothing is left');
});

test('a main thread that takes none costs entries, which are counted, and later ones come again', () => {
  const { status, log, pass, reports, told } = rig();
  for (const each of numbered(MAX_UNTAKEN + 5)) log.add(each);
  pass(20);
  assert.deepEqual([told(), reports.at(-1)], [MAX_UNTAKEN, { kind: 'entries', entries: [], lost: 5 }]);
  Atomics.add(status, STATUS.entriesTaken, MAX_UNTAKEN);
  log.add(entry());
  log.flush();
  assert.deepEqual(reports.at(-1), { kind: 'entries', entries: [entry()], lost: 0 });
});
