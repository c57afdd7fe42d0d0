import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { durationText, ENTRY_HEADER, entryText } from '../../src/cli/entry-text.ts';
import { timeOfDay } from '../../src/cli/format.ts';
import { type EntryLine, entryLine } from '../../src/operate/connection-log/line.ts';
import { endpointAt } from '../compliance/data-plane/harness.ts';
import { entry as logged } from '../operate/connection-log/entries.ts';

/** As a reader of the connection log finds it. */
function entry(changes?: Parameters<typeof logged>[0]): EntryLine {
  return JSON.parse(entryLine(logged(changes)));
}

const FAILED = { retries: 1, failed: [{ backend: '10.244.1.8:8080', reason: 'refused' }] } as const;

describe('an entry of the connection log for people', () => {
  test('stands below its header, in 120 columns', () => {
    assert.equal(
      ENTRY_HEADER,
      'Time     Prot Client                Endpoint              End            Took Received     Sent Service',
    );
    const line = entryText(entry({ name: 'kube-system/kube-dns:dns' }));
    assert.equal(
      line,
      `${timeOfDay(logged().endedAt)} TCP  10.0.0.7:40312        10.244.1.7:8080       client-end     1.0s      517    20431 kube-system/kube-dns:dns`,
    );
    assert.ok(line.length <= 120);
  });

  test('names failed tries, and unknown ends', () => {
    const tries = { ...FAILED, moreFailed: { timeout: 3, refused: 1 } };
    const line = entryText(entry({ client: undefined, backend: undefined, ending: 'refused-exhausted', tries }));
    assert.match(line, / - +- +refused-exhausted /);
    assert.match(line, / default\/web:http, not 10\.244\.1\.8:8080 \(refused\), and 4 more$/);
    assert.match(entryText(entry({ client: endpointAt('fd00::7', 80) })), / \[fd00::7\]:80 /);
  });

  test('says how long the client waited, before whom it had in vain', () => {
    const line = entryText(entry({ waitedMs: 1_500, tries: FAILED }));
    assert.match(line, / default\/web:http, waited 1\.5s, not 10\.244\.1\.8:8080 \(refused\)$/);
  });

  test('times take few columns', () => {
    const times = [0, 9.96, 10.6, 999.9, 1_000, 9_999, 10_000, 119_999, 120_000, 7_200_000, 172_800_000];
    const texts = ['0.0ms', '9.9ms', '10ms', '999ms', '1.0s', '9.9s', '10s', '119s', '2m', '2h', '2d'];
    assert.deepEqual(times.map(durationText), texts);
  });
});
