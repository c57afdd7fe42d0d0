import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ListenerId } from '../../src/model/service-port.ts';
import { RETIRED_FOR_MS } from '../../src/rules/local-ports.ts';
import { PortAllocator, type PortOwner } from '../../src/sync/port-allocator.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

const NONE: ReadonlySet<number> = new Set();

function tcp(id: ListenerId): PortOwner {
  return { id, protocol: 'TCP' };
}

function harness({ first = 100, last = 103, random = (): number => 0 } = {}) {
  const clock = new ManualClock();
  const ports = new PortAllocator({
    family: 'IPv4',
    range: { first, last },
    clock,
    random,
  });
  const take = (owner: PortOwner) => ports.take(owner, NONE);
  return { clock, ports, take };
}

describe('the port allocator', () => {
  test('gives each port once, those of TCP and UDP apart, and none beyond the range', () => {
    const { take } = harness({ last: 101 });
    assert.deepEqual([take(tcp('a/a')), take(tcp('a/b')), take(tcp('a/c'))], [100, 101, undefined]);
    assert.equal(take({ id: 'a/u', protocol: 'UDP' }), 100);
  });

  test('starts anywhere and wraps around', () => {
    const { ports } = harness({ random: () => 0.99 });
    assert.equal(ports.take(tcp('a/a'), NONE), 103);
    assert.equal(ports.take(tcp('a/b'), new Set([100])), 101);
  });

  test('never gives what a Service or a program of Kubernetes needs, not even to the listener that had it', () => {
    const needed = new Set<string>();
    const ports = new PortAllocator({
      ...{ family: 'IPv4', range: { first: 10_249, last: 10_253 }, clock: new ManualClock(), random: () => 0 },
      isNeeded: (port, protocol) => needed.has(`${port}/${protocol}`),
    });
    assert.equal(ports.take(tcp('a/a'), NONE), 10_251, 'the first two are of metrics and of kubelet');
    ports.retire(tcp('a/a'), 10_251);
    needed.add('10251/TCP').add('10252/UDP');
    assert.equal(ports.take(tcp('a/a'), NONE), 10_252);
    assert.equal(ports.take({ id: 'a/u', protocol: 'UDP' }, NONE), 10_251);
  });

  test('takes ports of the NodePort range last', () => {
    const ports = new PortAllocator({
      ...{ family: 'IPv4', range: { first: 1_024, last: 65_535 }, clock: new ManualClock() },
      ...{ random: () => 0.45, leftForLast: { first: 30_000, last: 32_767 } },
    });
    assert.equal(ports.take(tcp('a/a'), NONE), 32_768);
    const all = new Set(Array.from({ length: 65_536 }, (_, port) => port));
    for (const port of [30_000, 30_001]) all.delete(port);
    assert.equal(ports.take(tcp('a/b'), all), 30_000);
    assert.equal(ports.take(tcp('a/c'), all), 30_001);
    assert.equal(ports.take(tcp('a/d'), all), undefined);
  });

  test('keeps a retired port from other Service ports until conntrack has forgotten it', () => {
    const { clock, ports, take } = harness({ last: 101 });
    const old = tcp('a/old');
    const port = take(old) as number;
    ports.retire(old, port);
    assert.deepEqual([take(tcp('a/b')), take(tcp('a/c'))], [101, undefined]);
    assert.equal(take({ id: 'a/u', protocol: 'UDP' }), 100, 'conntrack tells TCP from UDP');
    clock.advance(RETIRED_FOR_MS - 1);
    assert.equal(take(tcp('a/c')), undefined);
    clock.advance(1);
    assert.equal(take(tcp('a/c')), 100);
  });

  test('gives a Service port that returns its old port', () => {
    const { ports, take } = harness({ random: () => 0.5 });
    const [a, b] = [tcp('a/a'), tcp('a/b')];
    const [portOfA, portOfB] = [take(a) as number, take(b) as number];
    ports.retire(a, portOfA);
    ports.retire(b, portOfB);
    assert.equal(take(b), portOfB);
    assert.equal(take(a), portOfA);
  });

  test('gives another port when another program uses the old one', () => {
    const { ports, take } = harness();
    const owner = tcp('a/a');
    const port = take(owner) as number;
    ports.retire(owner, port);
    assert.equal(ports.take(owner, NONE), port);
    ports.giveBack(owner, port);
    assert.notEqual(ports.take(owner, new Set([port])), port);
  });

  test('remembers the ports of a previous run, for their own Service ports only', () => {
    const { clock, ports, take } = harness({ last: 102 });
    ports.remember([
      { name: 'a/a', set: 'own', protocol: 'TCP', localPort: 102 },
      { name: 'a/gone', set: 'own', protocol: 'TCP', localPort: 100, retiredForMs: RETIRED_FOR_MS - 10 },
    ]);
    assert.equal(take(tcp('a/new')), 101);
    assert.equal(take(tcp('a/next')), undefined);
    assert.equal(take(tcp('a/a')), 102);
    clock.advance(10);
    assert.equal(take(tcp('a/next')), 100);
  });

  test('ignores ports of a previous run outside the range', () => {
    const { ports, take } = harness();
    ports.remember([{ name: 'a/a', set: 'own', protocol: 'TCP', localPort: 99 }]);
    assert.equal(take(tcp('a/a')), 100);
  });

  test('remembers all ports of a previous run, however many', () => {
    const { ports, take } = harness({ first: 10_000, last: 60_000 });
    const owners = Array.from({ length: 10_000 }, (_, i) => tcp(`a/${i}`));
    ports.remember(owners.map(({ protocol }, i) => ({ name: `a/${i}`, set: 'own', protocol, localPort: 20_000 + i })));
    assert.deepEqual(
      owners.map(take),
      owners.map((_, i) => 20_000 + i),
    );
  });

  test('distinguishes the two listeners of a Service port of a previous run', () => {
    const { ports, take } = harness();
    const port = { name: 'a/a', protocol: 'TCP' } as const;
    ports.remember([
      { ...port, set: 'own', localPort: 103 },
      { ...port, set: 'local', localPort: 102 },
    ]);
    assert.deepEqual([take(tcp('a/a/local')), take(tcp('a/a'))], [102, 103]);
  });

  test('never gives the ports that rules use to refuse or drop', () => {
    const { ports, take } = harness({ first: 1, last: 10 });
    const given = Array.from({ length: 8 }, (_, i) => take(tcp(`a/${i}`)));
    assert.deepEqual(given, [2, 3, 4, 5, 6, 7, 8, 10]);
    assert.equal(ports.take(tcp('a/more'), NONE), undefined);
  });

  test('of many retired ports forgets the oldest', () => {
    const { ports, take } = harness({ first: 20_000, last: 30_000 });
    for (let i = 0; i <= 4096; i++) {
      const owner = tcp(`a/${i}`);
      ports.retire(owner, take(owner) as number);
    }
    assert.deepEqual([take(tcp('a/new')), take(tcp('a/next'))], [20_000, 24_097]);
  });

  test('counts an adopted port as taken', () => {
    const { ports, take } = harness({ last: 101 });
    ports.adopt(tcp('a/a'), 100);
    assert.deepEqual([take(tcp('a/b')), take(tcp('a/c'))], [101, undefined]);
  });
});
