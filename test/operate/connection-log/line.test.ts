import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  durationText,
  entryLine,
  entryText,
  missingLine,
  TEXT_HEADER,
} from '../../../src/operate/connection-log/line.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';
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

  test('is one line, whatever is in a name', () => {
    const line = entryLine(entry({ name: 'a/b\n"\u2028\u001b[2J' as never }));
    assert.match(line, /^[\u0020-\u007e]*\n$/);
    assert.equal(JSON.parse(line).svc, 'a/b\n"\u2028\u001b[2J');
  });

  test('says how many are missing', () => {
    assert.equal(missingLine(12, 0), '{"ts":"1970-01-01T00:00:00.000Z","missing":12}\n');
  });
});

describe('the same for people', () => {
  const text = (of: Parameters<typeof entryText>[0]) => entryText(of, { time: () => '01:48:02', bytes: String });

  test('stands below its header, in 120 columns', () => {
    assert.equal(
      TEXT_HEADER,
      'Time     Prot Client                Endpoint              End            Took Received     Sent Service',
    );
    const line = text(entry({ name: 'kube-system/kube-dns:dns' }));
    assert.equal(
      line,
      '01:48:02 TCP  10.0.0.7:40312        10.244.1.7:8080       client-end     1.0s      517    20431 kube-system/kube-dns:dns',
    );
    assert.ok(line.length <= 120);
  });

  test('names failed tries, and unknown ends', () => {
    const tries = { ...FAILED, moreFailed: { timeout: 3, refused: 1 } };
    const line = text(entry({ client: undefined, backend: undefined, ending: 'refused-exhausted', tries }));
    assert.match(line, / - +- +refused-exhausted /);
    assert.match(line, / default\/web:http, not 10\.244\.1\.8:8080 \(refused\), and 4 more$/);
    assert.match(text(entry({ client: endpointAt('fd00::7', 80) })), / \[fd00::7\]:80 /);
  });

  test('times take few columns', () => {
    const times = [0, 9.96, 10.6, 999.9, 1_000, 9_999, 10_000, 119_999, 120_000, 7_200_000, 172_800_000];
    const texts = ['0.0ms', '9.9ms', '10ms', '999ms', '1.0s', '9.9s', '10s', '119s', '2m', '2h', '2d'];
    assert.deepEqual(times.map(durationText), texts);
  });
});
