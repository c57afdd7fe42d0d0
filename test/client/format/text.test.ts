import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fit, fitName, oneColumnEach } from '../../../src/client/format/text.ts';

describe('text for columns', () => {
  test('has no character that moves the cursor, is wide, or has no width', () => {
    assert.equal(oneColumnEach('a\u001b[2Jb\n\u202ec'), 'a\\u001b[2Jb\\u000a\\u202ec');
    assert.equal(oneColumnEach('\u4f60\u{1f600}e\u0301 \u00e9'), '??e? \u00e9');
  });

  test('is padded on the side that its alignment says', () => {
    assert.equal(fit('ab', 4, 'left', '~'), 'ab  ');
    assert.equal(fit('ab', 4, 'right', '~'), '  ab');
  });

  test('is cut with a sign', () => {
    assert.equal(fit('abcdef', 4, 'left', '~'), 'abc~');
    assert.equal(fit('abcd', 4, 'left', '~'), 'abcd');
    assert.equal(fit('abcd', 0, 'left', '~'), '');
  });

  test('is cut in its middle where it is a name', () => {
    assert.equal(fitName('shop/web:http (IPv6)', 15, '~'), 'shop/we~ (IPv6)');
    assert.equal(fitName('abcdefgh', 4, '~'), 'a~gh');
    assert.equal(fitName('abcdefgh', 1, '~'), '~');
    assert.equal(fitName('abcd', 4, '~'), 'abcd');
    assert.equal(fitName('ab', 4, '~'), 'ab  ');
    assert.equal(fitName('abcd', 0, '~'), '');
  });
});
