import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MAX_RETIRED, type PortBook, RETIRED_FOR_MS } from '../../src/capture/port-book.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { portBook } from '../support/capture.ts';
import { portal } from './fixtures.ts';

const on = (name: string, localPort: number, protocol: 'TCP' | 'UDP' = 'TCP') => portal({ name, localPort, protocol });
const named = (name: string) => name as ServicePortName;
const read = (ports: PortBook, after = 0) =>
  ports.retiredAfter(after).map(({ port: { name, set, protocol, localPort } }) => {
    return `${name}${set === 'own' ? '' : ' local'} ${localPort}/${protocol}`;
  });

function harness() {
  const clock = new ManualClock();
  return { clock, ports: portBook(clock, { range: { first: 1, last: 65_535 } }) };
}

describe('retired local ports', () => {
  test('are those whose Service was removed, and that no other Service uses', () => {
    const { ports } = harness();
    ports.serve(on('a/a', 1001));
    ports.serve(on('a/a', 1001));
    assert.deepEqual(read(ports), []);
    ports.remove(named('a/a'));
    ports.remove(named('a/a'));
    ports.remove(named('a/never'));
    assert.deepEqual(read(ports), ['a/a 1001/TCP']);

    const { ports: shared } = harness();
    for (const [name, protocol] of [
      ['a/a', 'TCP'],
      ['a/b', 'UDP'],
      ['a/c', 'TCP'],
    ] as const) {
      shared.serve(on(name, 1001, protocol));
    }
    for (const name of ['a/a', 'a/b']) shared.remove(named(name));
    assert.deepEqual(read(shared), ['a/b 1001/UDP'], 'a/c has taken over the TCP port');
  });

  test('may be one of the two ports of a Service port', () => {
    const { ports } = harness();
    const both = portal({ name: 'a/a', localPort: 1001, localSetPort: 1002 });
    ports.serve(both);
    ports.serve(on('a/a', 1001));
    assert.deepEqual(read(ports), ['a/a local 1002/TCP']);
    ports.serve(both);
    assert.deepEqual(read(ports), []);
    ports.serve(portal({ name: 'a/a', localPort: 1002, localSetPort: 1003 }));
    assert.deepEqual(read(ports), ['a/a 1001/TCP'], 'the other one carries it still');
    ports.remove(named('a/a'));
    assert.deepEqual(read(ports), ['a/a 1001/TCP', 'a/a 1002/TCP', 'a/a local 1003/TCP']);
  });

  test('are told from those before', () => {
    const { ports } = harness();
    ports.serve(on('a/a', 1001));
    ports.serve(on('a/b', 1002));
    ports.remove(named('a/a'));
    const serial = ports.retiredAfter(0).at(-1)?.serial ?? 0;
    assert.deepEqual(read(ports, serial), []);
    ports.remove(named('a/b'));
    assert.deepEqual(read(ports, serial), ['a/b 1002/TCP']);
    assert.deepEqual(read(ports), ['a/a 1001/TCP', 'a/b 1002/TCP']);
  });

  test('expire, and serve again', () => {
    const { ports, clock } = harness();
    for (const [index, name] of ['a/a', 'a/b', 'a/c'].entries()) {
      ports.serve(on(name, 1001 + index));
      ports.remove(named(name));
      clock.advance(100_000);
    }
    ports.serve(on('a/new', 1002));
    assert.deepEqual(read(ports), ['a/c 1003/TCP']);
    clock.advance(RETIRED_FOR_MS);
    assert.deepEqual(read(ports), []);
  });

  test('that the kernel knows and nobody uses are taken up with their ages, once', () => {
    const { ports, clock } = harness();
    ports.serve(on('a/a', 1001));
    for (let i = 0; i < 2; i++) {
      ports.found({ name: named('a/a'), set: 'own', protocol: 'TCP', localPort: 1001 });
      ports.found({ name: named('old/a'), set: 'own', protocol: 'TCP', localPort: 1001 });
      ports.found({ name: named('old/b'), set: 'own', protocol: 'TCP', localPort: 1002, retiredForMs: 250_000 });
    }
    assert.deepEqual(read(ports), ['old/b 1002/TCP']);
    clock.advance(50_000);
    assert.deepEqual(read(ports), []);
  });

  test('are the latest, where there are too many', () => {
    const { ports } = harness();
    for (let i = 0; i < MAX_RETIRED + 10; i++) {
      ports.serve(on(`a/${i}`, 1 + i));
      ports.remove(named(`a/${i}`));
    }
    const all = read(ports);
    assert.deepEqual([all.length, all.at(0)], [MAX_RETIRED, 'a/10 11/TCP']);
  });
});
