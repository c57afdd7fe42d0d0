import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LastingFault } from '../../src/util/lasting-fault.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

test('a lasting fault is told when it begins, when its cause changes, and when it is over', () => {
  const log = new RecordingLog();
  const fault = new LastingFault({ log, begun: 'Cannot', over: 'Can again' });
  fault.succeeded();
  for (const err of ['locked', 'locked', 'killed', 'killed']) fault.failed(err, { family: 'IPv4' });
  for (let tries = 0; tries < 2; tries++) fault.succeeded({ family: 'IPv4' });
  fault.failed('killed');
  assert.deepEqual(log.lines, [
    { level: 'error', message: 'Cannot', fields: { family: 'IPv4', err: 'locked' } },
    { level: 'error', message: 'Cannot', fields: { family: 'IPv4', err: 'killed' } },
    { level: 'info', message: 'Can again', fields: { family: 'IPv4' } },
    { level: 'error', message: 'Cannot', fields: { err: 'killed' } },
  ]);
});
