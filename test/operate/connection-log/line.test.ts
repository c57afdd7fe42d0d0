import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { entryLine, missingLine } from '../../../src/operate/connection-log/line.ts';
import { entry } from './entries.ts';

const FAILED = { retries: 1, failed: [{ backend: '10.244.1.8:8080', reason: 'refused' }] } as const;

describe('a line of the connection log', () => {
  test('has the documented fields, in this order', () => {
    assert.equal(
      entryLine(entry()),
      '{"ts":"2026-11-23T01:48:02.043Z","svc":"default/web:http","proto":"TCP","client":"10.0.0.7:40312",' +
        '"backend":"10.244.1.7:8080","end":"client-end","received":517,"sent":20431,' +
        '"began":"2026-11-23T01:48:00.999Z","ms":1043.252,"retries":0}\n',
    );
  });

  test('has failed tries, and leaves out what there is not', () => {
    const tries = { ...FAILED, moreFailed: { timeout: 3 } };
    const line = entryLine(entry({ client: undefined, backend: undefined, ending: 'refused-exhausted', tries }));
    const { failed, more_failed, ...rest } = JSON.parse(line);
    assert.deepEqual([failed, more_failed], [FAILED.failed, { timeout: 3 }]);
    assert.equal('client' in rest || 'backend' in rest, false);
  });

  test('says how long the client waited for an endpoint, where it did', () => {
    const line = entryLine(entry({ ending: 'refused-wait-timeout', waitedMs: 1_000.12345 }));
    assert.match(line, /"end":"refused-wait-timeout",.*"ms":1043.252,"waited":1000.123,"retries":0}\n$/);
  });

  test('is one line, whatever is in a name', () => {
    const line = entryLine(entry({ name: 'a/b\n"\u2028\u001b[2J' as never }));
    assert.match(line, /^[\u0020-\u007e]*\n$/);
    assert.equal(JSON.parse(line).svc, 'a/b\n"\u2028\u001b[2J');
  });

  test('says how many are missing', () => {
    assert.equal(missingLine(12, 0), '{"ts":"1970-01-01T00:00:00.000Z","missing":12}\n');
  });
});
