import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ServicePortName } from '../../src/model/service.ts';
import { MAX_RETIRED, type RetiredLog, RetiredPorts, retiredPorts } from '../../src/rules/local-ports.ts';
import { portal } from './fixtures.ts';

const NOW = 1_700_000_000_000;
const on = (name: string, localPort: number, protocol: 'TCP' | 'UDP' = 'TCP') => portal({ name, localPort, protocol });
const named = (name: string) => name as ServicePortName;
const read = ({ specs, length }: RetiredLog, now = NOW) =>
  retiredPorts(specs.slice(0, length), now).map(
    ({ name, set, protocol, localPort }) => `${name}${set === 'own' ? '' : ' local'} ${localPort}/${protocol}`,
  );

describe('the ledger of local ports', () => {
  test('notes a port when its Service goes, and only then', () => {
    const ledger = new RetiredPorts();
    ledger.serve(on('a/a', 1001), NOW);
    ledger.serve(on('a/a', 1001), NOW);
    assert.equal(ledger.log(NOW).length, 0);
    ledger.remove(named('a/a'), NOW);
    ledger.remove(named('a/a'), NOW);
    ledger.remove(named('a/never'), NOW);
    assert.deepEqual(read(ledger.log(NOW)), ['a/a 1001/TCP']);
  });

  test('knows both ports of a Service port, and which of them went', () => {
    const ledger = new RetiredPorts();
    const both = portal({ name: 'a/a', localPort: 1001, localSetPort: 1002 });
    ledger.serve(both, NOW);
    ledger.serve(on('a/a', 1001), NOW);
    assert.deepEqual(read(ledger.log(NOW)), ['a/a local 1002/TCP']);
    ledger.serve(both, NOW);
    assert.deepEqual(read(ledger.compactLog(NOW)), []);
    ledger.serve(portal({ name: 'a/a', localPort: 1002, localSetPort: 1003 }), NOW);
    assert.deepEqual(read(ledger.compactLog(NOW)), ['a/a 1001/TCP'], 'the other one carries it still');
    ledger.remove(named('a/a'), NOW);
    assert.deepEqual(read(ledger.compactLog(NOW)), ['a/a 1001/TCP', 'a/a 1002/TCP', 'a/a local 1003/TCP']);
  });

  test('appends to the log that it gave before', () => {
    const ledger = new RetiredPorts();
    ledger.serve(on('a/a', 1001), NOW);
    ledger.serve(on('a/b', 1002), NOW);
    ledger.remove(named('a/a'), NOW);
    const before = ledger.log(NOW);
    ledger.remove(named('a/b'), NOW);
    const after = ledger.log(NOW);
    assert.equal(after.specs, before.specs);
    assert.deepEqual([before.length, after.length], [1, 2]);
    assert.deepEqual(read(before), ['a/a 1001/TCP']);
    assert.equal(ledger.compactLog(NOW).specs, before.specs, 'nothing to leave out');
  });

  test('leaves out what has expired and what is in use, in a log of its own', () => {
    const ledger = new RetiredPorts();
    for (const [index, name] of ['a/a', 'a/b', 'a/c'].entries()) {
      ledger.serve(on(name, 1001 + index), NOW);
      ledger.remove(named(name), NOW + index * 100_000);
    }
    const before = ledger.log(NOW);
    ledger.serve(on('a/new', 1002), NOW);
    const later = NOW + 300_000;
    assert.equal(ledger.log(later).specs, before.specs);
    const compact = ledger.compactLog(later);
    assert.notEqual(compact.specs, before.specs);
    assert.deepEqual(read(compact, later), ['a/c 1003/TCP']);
    assert.equal(before.length, 3, 'what was given stays as it was');
    assert.equal(before.specs.length, 3);
  });

  test('tells ports of TCP from those of UDP', () => {
    const ledger = new RetiredPorts();
    ledger.serve(on('a/a', 1001, 'TCP'), NOW);
    ledger.serve(on('a/b', 1001, 'UDP'), NOW);
    ledger.remove(named('a/b'), NOW);
    assert.deepEqual(read(ledger.log(NOW)), ['a/b 1001/UDP']);
  });

  test('retires what the kernel knows and nobody uses, with its age, once', () => {
    const ledger = new RetiredPorts();
    ledger.serve(on('a/a', 1001), NOW);
    for (let i = 0; i < 2; i++) {
      ledger.found({ name: named('a/a'), set: 'own', protocol: 'TCP', localPort: 1001 }, NOW);
      ledger.found({ name: named('old/a'), set: 'own', protocol: 'TCP', localPort: 1001 }, NOW);
      ledger.found({ name: named('old/b'), set: 'own', protocol: 'TCP', localPort: 1002, retiredForMs: 250_000 }, NOW);
    }
    assert.deepEqual(read(ledger.log(NOW)), ['old/b 1002/TCP']);
    assert.deepEqual(read(ledger.compactLog(NOW + 50_000), NOW + 50_000), []);
  });

  test('a port that another Service port has taken over is not retired', () => {
    const ledger = new RetiredPorts();
    ledger.serve(on('a/a', 1001), NOW);
    ledger.serve(on('a/b', 1001), NOW);
    ledger.remove(named('a/a'), NOW);
    assert.equal(ledger.log(NOW).length, 0);
  });

  test('keeps a bounded number, the latest; and so does the log', () => {
    const ledger = new RetiredPorts();
    const churn = (count: number) => {
      for (let i = 0; i < count; i++) {
        ledger.serve(on(`a/${i}`, 1 + (i % 60_000)), NOW);
        ledger.remove(named(`a/${i}`), NOW);
      }
    };
    churn(MAX_RETIRED + 10);
    assert.equal(ledger.log(NOW).length, MAX_RETIRED + 10, 'no need to write all again yet');
    const compact = ledger.compactLog(NOW);
    assert.equal(compact.length, MAX_RETIRED);
    assert.equal(read(compact).at(0), 'a/10 11/TCP');
    churn(50_000);
    assert.equal(ledger.log(NOW).length, MAX_RETIRED);
  });
});
