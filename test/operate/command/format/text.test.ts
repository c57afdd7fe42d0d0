import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { oneColumnEach } from '../../../../src/operate/command/format/text.ts';

describe('text for columns', () => {
  test('has no character that moves the cursor, is wide, or has no width', () => {
    assert.equal(oneColumnEach('a\u001b[2Jb\n\u202ec'), 'a\\u001b[2Jb\\u000a\\u202ec');
    assert.equal(oneColumnEach('\u4f60\u{1f600}e\u0301 \u00e9'), '??e? \u00e9');
  });
});
