import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { linesOf } from '../../../src/operate/control/lines.ts';
import { all } from './served.ts';

function lines(chunks: readonly (string | Buffer)[], maxBytes = 100): Promise<string[]> {
  async function* stream() {
    for (const chunk of chunks) yield Buffer.from(chunk);
  }
  return all(linesOf(stream(), maxBytes));
}

describe('lines of a stream', () => {
  test('do not depend on where it is cut', async () => {
    const text = Buffer.from('one\n\nzwölf\n…\n');
    const expected = ['one', '', 'zwölf', '…'];
    assert.deepEqual(await lines([text]), expected);
    assert.deepEqual(await lines([...text].map((byte) => Buffer.from([byte]))), expected);
    assert.deepEqual(await lines([text.subarray(0, 5), text.subarray(5)]), expected);
  });

  test('end with a newline', async () => {
    assert.deepEqual(await lines(['one\ntwo']), ['one']);
    assert.deepEqual(await lines([]), []);
  });

  test('have a bound, with and without their end', async () => {
    assert.deepEqual(await lines(['12345\n12345\n'], 5), ['12345', '12345']);
    assert.deepEqual(await lines(['123', '45\n12345\n1', '2345\n'], 5), ['12345', '12345', '12345']);
    await assert.rejects(lines(['123456\n'], 5), /longer than 5 bytes/);
    await assert.rejects(lines(['123', '456'], 5), /longer than 5 bytes/);
    await assert.rejects(lines(['12345', '6\n'], 5), /longer than 5 bytes/);
  });
});
