import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ServicePortName } from '../../src/model/service.ts';
import { RETIRED_FOR_MS, retiredPorts } from '../../src/rules/local-ports.ts';
import { MAX_RETIRED, PortHistory, type PortOwner, type RetiredLog } from '../../src/rules/port-history.ts';
import { portal } from './fixtures.ts';

const NOW = 1_700_000_000_000;

const on = (name: string, localPort: number, protocol: 'TCP' | 'UDP' = 'TCP') => portal({ name, localPort, protocol });
const named = (name: string) => name as ServicePortName;
const read = ({ specs, length }: RetiredLog, now = NOW) =>
  retiredPorts(specs.slice(0, length), now).map(
    ({ name, set, protocol, localPort }) => `${name}${set === 'own' ? '' : ' local'} ${localPort}/${protocol}`,
  );

describe('retired local ports', () => {
  test('records a port when its Service is removed and no other Service uses the port', () => {
    const ports = new PortHistory();
    ports.serve(on('a/a', 1001), NOW);
    ports.serve(on('a/a', 1001), NOW);
    assert.equal(ports.log(NOW).length, 0);
    ports.remove(named('a/a'), NOW);
    ports.remove(named('a/a'), NOW);
    ports.remove(named('a/never'), NOW);
    assert.deepEqual(read(ports.log(NOW)), ['a/a 1001/TCP']);

    const shared = new PortHistory();
    for (const [name, protocol] of [
      ['a/a', 'TCP'],
      ['a/b', 'UDP'],
      ['a/c', 'TCP'],
    ] as const) {
      shared.serve(on(name, 1001, protocol), NOW);
    }
    for (const name of ['a/a', 'a/b']) shared.remove(named(name), NOW);
    assert.deepEqual(read(shared.log(NOW)), ['a/b 1001/UDP'], 'a/c has taken over the TCP port');
  });

  test('records which of the two ports of a Service port is no longer used', () => {
    const ports = new PortHistory();
    const both = portal({ name: 'a/a', localPort: 1001, localSetPort: 1002 });
    ports.serve(both, NOW);
    ports.serve(on('a/a', 1001), NOW);
    assert.deepEqual(read(ports.log(NOW)), ['a/a local 1002/TCP']);
    ports.serve(both, NOW);
    assert.deepEqual(read(ports.compactLog(NOW)), []);
    ports.serve(portal({ name: 'a/a', localPort: 1002, localSetPort: 1003 }), NOW);
    assert.deepEqual(read(ports.compactLog(NOW)), ['a/a 1001/TCP'], 'the other one carries it still');
    ports.remove(named('a/a'), NOW);
    assert.deepEqual(read(ports.compactLog(NOW)), ['a/a 1001/TCP', 'a/a 1002/TCP', 'a/a local 1003/TCP']);
  });

  test('appends to the log that it returned before', () => {
    const ports = new PortHistory();
    ports.serve(on('a/a', 1001), NOW);
    ports.serve(on('a/b', 1002), NOW);
    ports.remove(named('a/a'), NOW);
    const before = ports.log(NOW);
    ports.remove(named('a/b'), NOW);
    const after = ports.log(NOW);
    assert.equal(after.specs, before.specs);
    assert.deepEqual([before.length, after.length], [1, 2]);
    assert.deepEqual(read(before), ['a/a 1001/TCP']);
    assert.equal(ports.compactLog(NOW).specs, before.specs, 'nothing to leave out');
  });

  test('leaves out expired ports and ports in use, in a new log', () => {
    const ports = new PortHistory();
    for (const [index, name] of ['a/a', 'a/b', 'a/c'].entries()) {
      ports.serve(on(name, 1001 + index), NOW);
      ports.remove(named(name), NOW + index * 100_000);
    }
    const before = ports.log(NOW);
    ports.serve(on('a/new', 1002), NOW);
    const later = NOW + 300_000;
    assert.equal(ports.log(later).specs, before.specs);
    const compact = ports.compactLog(later);
    assert.notEqual(compact.specs, before.specs);
    assert.deepEqual(read(compact, later), ['a/c 1003/TCP']);
    assert.equal(before.length, 3, 'what was given stays as it was');
    assert.equal(before.specs.length, 3);
  });

  test('tells who has or had a port, and which port a listener had last', () => {
    const ports = new PortHistory();
    const both = portal({ name: 'a/a', localPort: 1001, localSetPort: 1002 });
    ports.serve(both, NOW);
    const local: PortOwner = { name: named('a/a'), set: 'local', protocol: 'TCP' };
    const seen = () => [ports.portOf(local), ports.ownerOf(1002, 'TCP')?.set, ports.ownerOf(1002, 'UDP')];
    assert.deepEqual(seen(), [1002, 'local', undefined]);
    ports.remove(named('a/a'), NOW);
    assert.deepEqual(seen(), [1002, 'local', undefined]);
    assert.equal(ports.expire(NOW + RETIRED_FOR_MS - 1), 0);
    assert.equal(ports.expire(NOW + RETIRED_FOR_MS), 2);
    assert.deepEqual(seen(), [undefined, undefined, undefined]);
  });

  test('gives up the port that retired first, never one that rules lead to', () => {
    const ports = new PortHistory();
    for (const [index, name] of ['a/a', 'a/b', 'a/c'].entries()) ports.serve(on(name, 1001 + index), NOW);
    ports.serve(on('a/u', 1009, 'UDP'), NOW);
    for (const name of ['a/u', 'a/b', 'a/a']) ports.remove(named(name), NOW);
    const reclaim = () => ports.reclaim('TCP', (port) => port !== 1002);
    assert.deepEqual([reclaim(), reclaim()], [1001, undefined]);
    assert.equal(ports.ownerOf(1001, 'TCP'), undefined);
    assert.equal(
      ports.reclaim('TCP', () => true),
      1002,
    );
    assert.equal(
      ports.reclaim('TCP', () => true),
      undefined,
    );
  });

  test('retires ports that the kernel knows and nobody uses, with their ages, once', () => {
    const ports = new PortHistory();
    ports.serve(on('a/a', 1001), NOW);
    for (let i = 0; i < 2; i++) {
      ports.found({ name: named('a/a'), set: 'own', protocol: 'TCP', localPort: 1001 }, NOW);
      ports.found({ name: named('old/a'), set: 'own', protocol: 'TCP', localPort: 1001 }, NOW);
      ports.found({ name: named('old/b'), set: 'own', protocol: 'TCP', localPort: 1002, retiredForMs: 250_000 }, NOW);
    }
    assert.deepEqual(read(ports.log(NOW)), ['old/b 1002/TCP']);
    assert.deepEqual(read(ports.compactLog(NOW + 50_000), NOW + 50_000), []);
  });

  test('keeps only the latest ports, in the log as well', () => {
    const ports = new PortHistory();
    const churn = (count: number) => {
      for (let i = 0; i < count; i++) {
        ports.serve(on(`a/${i}`, 1 + (i % 60_000)), NOW);
        ports.remove(named(`a/${i}`), NOW);
      }
    };
    churn(MAX_RETIRED + 10);
    assert.equal(ports.log(NOW).length, MAX_RETIRED + 10, 'no need to write all again yet');
    const compact = ports.compactLog(NOW);
    assert.equal(compact.length, MAX_RETIRED);
    assert.equal(read(compact).at(0), 'a/10 11/TCP');
    churn(50_000);
    assert.equal(ports.log(NOW).length, MAX_RETIRED);
  });
});
