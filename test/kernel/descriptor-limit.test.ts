import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { checkDescriptorLimit, descriptorLimit } from '../../src/kernel/descriptor-limit.ts';
import { RecordingLog } from '../fakes/recording-log.ts';

describe('the limit on open files', () => {
  test('is the soft limit', () => {
    const text =
      'Limit  Soft Limit  Hard Limit  Units\nMax processes  1  2  processes\nMax open files            1024                 524288               files\n';
    assert.equal(descriptorLimit(text), 1_024);
    assert.equal(descriptorLimit(text.replace('1024 ', 'unlimited ')), undefined);
    assert.equal(descriptorLimit(''), undefined);
  });

  test('is warned about once when it is below the UDP flows', () => {
    const log = new RecordingLog();
    checkDescriptorLimit(1, log);
    assert.deepEqual(log.lines, []);
    checkDescriptorLimit(2 ** 40, log);
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields['udpMaxFlows']]),
      [['warn', 2 ** 40]],
    );
  });
});
