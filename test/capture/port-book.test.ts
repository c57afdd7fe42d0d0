import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type PortOwner, RETIRED_FOR_MS } from '../../src/capture/port-book.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { portBook } from '../support/capture.ts';
import { portal } from './fixtures.ts';

const NONE: ReadonlySet<number> = new Set();

function tcp(name: ServicePortName): PortOwner {
  return { name, set: 'own', protocol: 'TCP' };
}

function udp(name: ServicePortName): PortOwner {
  return { ...tcp(name), protocol: 'UDP' };
}

function harness({
  first = 100,
  last = 103,
  reserved = [] as number[],
  random = (): number => 0,
  isNeeded = (_port: number): boolean => false,
} = {}) {
  const clock = new ManualClock();
  const ports = portBook(clock, { range: { first, last }, reserved: new Set(reserved), isNeeded, random });
  const take = (owner: PortOwner, except = NONE) => ports.take(owner, except)?.port;
  /** What rules do while a listener has the port, and after that. */
  const retire = (owner: PortOwner, port: number) => {
    ports.serve(portal({ name: owner.name, protocol: owner.protocol, localPort: port }));
    ports.remove(owner.name);
    ports.giveBack(owner, port);
  };
  return { clock, ports, take, retire };
}

describe('the port allocator', () => {
  test('gives each port once, those of TCP and UDP apart, and none beyond the range', () => {
    const { take } = harness({ last: 101 });
    assert.deepEqual([take(tcp('a/a')), take(tcp('a/b')), take(tcp('a/c'))], [100, 101, undefined]);
    assert.equal(take(udp('a/u')), 100);
  });

  test('starts anywhere and wraps around', () => {
    const { take } = harness({ random: () => 0.99 });
    assert.equal(take(tcp('a/a')), 103);
    assert.equal(take(tcp('a/b'), new Set([100])), 101);
  });

  test('leaves out what is reserved for other programs', () => {
    const { take } = harness({ last: 101, reserved: [100] });
    assert.deepEqual([take(tcp('a/a')), take(tcp('a/b'))], [101, undefined]);
  });

  test('a Service port leaves a port that has been reserved since the previous run', () => {
    const { ports, take } = harness({ reserved: [101] });
    ports.remember([{ ...tcp('a/a'), localPort: 101 }]);
    assert.equal(take(tcp('a/a')), 100);
  });

  test('never gives what a Service or a program of Kubernetes needs, not even to the listener that had it', () => {
    const needed = new Set<number>();
    const isNeeded = (port: number) => needed.has(port);
    const { take, retire } = harness({ first: 10_249, last: 10_253, isNeeded });
    assert.equal(take(tcp('a/a')), 10_251, 'the first two are of metrics and of kubelet');
    retire(tcp('a/a'), 10_251);
    needed.add(10_251);
    assert.equal(take(tcp('a/a')), 10_252);
  });

  test('takes ports of the NodePort range last', () => {
    const ports = portBook(new ManualClock(), {
      range: { first: 1_024, last: 65_535 },
      random: () => 0.45,
      leftForLast: { first: 30_000, last: 32_767 },
    });
    const take = (owner: PortOwner, except = NONE) => ports.take(owner, except)?.port;
    assert.equal(take(tcp('a/a')), 32_768);
    const all = new Set(Array.from({ length: 65_536 }, (_, port) => port));
    for (const port of [30_000, 30_001]) all.delete(port);
    assert.equal(take(tcp('a/b'), all), 30_000);
    assert.equal(take(tcp('a/c'), all), 30_001);
    assert.equal(take(tcp('a/d'), all), undefined);
  });

  test('keeps a retired port from other Service ports until conntrack has forgotten it, or no other is free', () => {
    const { clock, ports, take, retire } = harness({ last: 102 });
    for (const [name, port] of [
      ['a/first', 100],
      ['a/second', 101],
    ] as const) {
      assert.equal(take(tcp(name)), port);
    }
    retire(tcp('a/first'), 100);
    retire(tcp('a/second'), 101);
    assert.deepEqual(ports.take(tcp('a/new'), NONE), { port: 102, isReclaimed: false });
    assert.equal(take(udp('a/u')), 100, 'conntrack tells TCP from UDP');
    assert.deepEqual(ports.take(tcp('a/more'), NONE), { port: 100, isReclaimed: true }, 'the one that retired first');
    assert.equal(take(tcp('a/first')), 101, 'its old port is gone');
    assert.equal(take(tcp('a/second')), undefined);
    retire(tcp('a/more'), 100);
    clock.advance(RETIRED_FOR_MS);
    assert.deepEqual(ports.take(tcp('a/later'), NONE), { port: 100, isReclaimed: false });
  });

  test('never gives a port that rules still send to another Service port', () => {
    const { ports, take } = harness({ last: 100 });
    const was = tcp('a/was');
    ports.serve(portal({ name: was.name, localPort: take(was) as number }));
    ports.giveBack(was, 100);
    assert.equal(take(tcp('a/new')), undefined);
    assert.equal(take(was), 100);
  });

  test('finds a port that conntrack has forgotten after a search has found none', () => {
    const { clock, ports, take, retire } = harness({ last: 102 });
    for (const [index, name] of (['a/a', 'a/b', 'a/c'] as const).entries()) assert.equal(take(tcp(name)), 100 + index);
    retire(tcp('a/a'), 100);
    retire(tcp('a/b'), 101);
    assert.equal(take(tcp('a/d')), 100);
    clock.advance(RETIRED_FOR_MS);
    assert.deepEqual(ports.retiredAfter(0), []);
    assert.deepEqual(ports.take(tcp('a/e'), NONE), { port: 101, isReclaimed: false });
  });

  test('gives a Service port that returns its old port', () => {
    const { take, retire } = harness({ random: () => 0.5 });
    const [a, b] = [tcp('a/a'), tcp('a/b')];
    const [portOfA, portOfB] = [take(a) as number, take(b) as number];
    retire(a, portOfA);
    retire(b, portOfB);
    assert.equal(take(b), portOfB);
    assert.equal(take(a), portOfA);
  });

  test('gives another port when another program uses the old one', () => {
    const { ports, take, retire } = harness();
    const owner = tcp('a/a');
    const port = take(owner) as number;
    retire(owner, port);
    assert.equal(take(owner), port);
    ports.giveBack(owner, port);
    assert.notEqual(take(owner, new Set([port])), port);
  });

  test('remembers the ports of a previous run, for their own Service ports first', () => {
    const { clock, ports, take } = harness({ last: 102 });
    ports.remember([
      { name: 'a/a', set: 'own', protocol: 'TCP', localPort: 102 },
      { name: 'a/gone', set: 'own', protocol: 'TCP', localPort: 100, retiredForMs: RETIRED_FOR_MS - 10 },
    ]);
    assert.equal(take(tcp('a/new')), 101);
    assert.equal(take(tcp('a/a')), 102);
    clock.advance(10);
    assert.deepEqual(ports.take(tcp('a/next'), NONE), { port: 100, isReclaimed: false });
  });

  test('takes the oldest port of a previous run first', () => {
    const { ports, take } = harness({ last: 101 });
    ports.remember([
      { name: 'a/lives', set: 'own', protocol: 'TCP', localPort: 100 },
      { name: 'a/gone', set: 'own', protocol: 'TCP', localPort: 101, retiredForMs: 5 },
    ]);
    assert.deepEqual([take(tcp('a/new')), take(tcp('a/lives'))], [101, 100]);
  });

  test('ignores ports of a previous run outside the range', () => {
    const { ports, take } = harness();
    ports.remember([{ name: 'a/a', set: 'own', protocol: 'TCP', localPort: 99 }]);
    assert.equal(take(tcp('a/a')), 100);
  });

  test('remembers all ports of a previous run, however many', () => {
    const { ports, take } = harness({ first: 10_000, last: 60_000 });
    const owners = Array.from({ length: 10_000 }, (_, i) => tcp(`a/${i}`));
    ports.remember(owners.map((owner, i) => ({ ...owner, localPort: 20_000 + i })));
    assert.deepEqual(
      owners.map((owner) => take(owner)),
      owners.map((_, i) => 20_000 + i),
    );
  });

  test('distinguishes the two listeners of a Service port of a previous run', () => {
    const { ports, take } = harness();
    const own = tcp('a/a');
    const local = { ...own, set: 'local' } as const;
    ports.remember([
      { ...own, localPort: 103 },
      { ...local, localPort: 102 },
    ]);
    assert.deepEqual([take(local), take(own)], [102, 103]);
  });

  test('never gives the ports that rules use to refuse or drop', () => {
    const { take } = harness({ first: 1, last: 10 });
    const given = Array.from({ length: 8 }, (_, i) => take(tcp(`a/${i}`)));
    assert.deepEqual(given, [2, 3, 4, 5, 6, 7, 8, 10]);
    assert.equal(take(tcp('a/more')), undefined);
  });

  test('counts an adopted port as taken', () => {
    const { ports, take } = harness({ last: 101 });
    ports.adopt(tcp('a/a'), 100);
    assert.deepEqual([take(tcp('a/b')), take(tcp('a/c'))], [101, undefined]);
  });

  test('lets one namespace have most ports, two a share each, and always keeps one for the next', () => {
    const { ports, take } = harness({ first: 20_000, last: 20_199 });
    const fill = (namespace: string) => {
      let count = 0;
      while (ports.isWithinShare(tcp(`${namespace}/${count}`))) {
        assert.notEqual(take(tcp(`${namespace}/${count}`)), undefined);
        count++;
      }
      return count;
    };
    assert.equal(fill('hog'), 160);
    assert.equal(fill('other'), 32);
    assert.equal(fill('third'), 7);
    assert.equal(fill('fourth'), 1);
    assert.equal(take(udp('hog/u')), 20_000, 'those of UDP are counted apart');
  });

  test('counts what a namespace gives back, and ports that were adopted', () => {
    const { ports, take, retire } = harness({ first: 20_000, last: 20_004 });
    for (let port = 20_000; port < 20_004; port++) ports.adopt(tcp(`hog/${port}`), port);
    assert.equal(ports.isWithinShare(tcp('hog/more')), false);
    assert.equal(ports.isWithinShare(tcp('other/a')), true);
    retire(tcp('hog/20000'), 20_000);
    assert.equal(ports.isWithinShare(tcp('hog/more')), true);
    assert.deepEqual([take(tcp('other/a')), take(tcp('other/b'))], [20_004, 20_000], 'the retired one as the last');
  });
});
