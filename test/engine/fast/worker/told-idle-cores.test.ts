import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Report, STATUS, STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { IDLE_CORE, ToldIdleCores } from '../../../../src/engine/fast/worker/told-idle-cores.ts';

test('a worker asks for idle cores every 100 ms, and takes no answer to an old question for a new one', () => {
  const status = new Int32Array(STATUS_WORDS);
  const reports: Report[] = [];
  const cores = new ToldIdleCores(status, (report) => reports.push(report));
  const answer = (idle: number) => {
    status[STATUS.idleCores] = idle * IDLE_CORE;
  };
  assert.equal(cores.at(0, 1000), 0);
  assert.deepEqual(reports, [{ kind: 'ask-idle-cores' }]);
  answer(1.5);
  assert.equal(cores.at(99, 1000), 1.5);
  assert.equal(reports.length, 1);
  assert.equal(cores.at(100, 1000), 1.5);
  assert.equal(reports.length, 2);
  answer(0.25);
  assert.equal(cores.at(1100, 1000), 0.25);
  assert.equal(reports.length, 3);
  assert.equal(cores.at(2101, 1000), 0);
  assert.equal(reports.length, 4);
});
