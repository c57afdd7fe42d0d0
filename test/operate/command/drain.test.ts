import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Endpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type {
  ConnectionView,
  EndpointState,
  EndpointView,
  ListenerView,
  ServiceFilter,
  ServiceView,
} from '../../../src/model/view.ts';
import { DRAIN } from '../../../src/operate/command/drain.ts';
import { parseEndpoint } from '../../../src/operate/command/shared.ts';
import { endpointUsers } from '../../../src/operate/control/endpoint-users.ts';
import type { CommandName, Commands, Control } from '../../../src/operate/control/protocol.ts';
import { counters, FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { settle, until } from '../../support/until.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

const POD = '10.244.1.7:8080';
const OTHER = '10.244.1.8:8080';

/** Connections by endpoint, as the proxy counts them; `undefined` where it does not. */
type Open = Record<string, number | undefined>;

function listener(set: ListenerView['set'], open: Open, states: Record<string, EndpointState> = {}): ListenerView {
  const endpoints = Object.entries(open).map(([name, active]): EndpointView => {
    const counted = active === undefined ? {} : { counters: { ...counters(0), active } };
    return { endpoint: parseEndpoint(name), state: states[name] ?? 'active', ...counted };
  });
  return {
    ...{ set, traffic: [], localPort: 1, endpoints },
    endpointCount: { all: endpoints.length, active: endpoints.filter(({ state }) => state === 'active').length },
  };
}

/** A proxy with these Services, by `namespace/service`, which drains at once. */
class FakeProxy implements Control {
  readonly services: Record<string, ListenerView[]>;
  /** What is open to the pod, whether or not the counters of a Service show it. */
  readonly connections: ServicePortName[] = [];
  readonly drained: string[] = [];
  readonly asked: string[] = [];
  /** How often all connections were looked through. */
  listed = 0;
  /** Told in place of the next answers. */
  failures = 0;
  readonly #example = [...new FakeView({ services: 1 }).services()][0] as ServiceView;

  readonly #view = Object.assign(new FakeView(), {
    services: (filter: ServiceFilter = {}) => this.#serviceViews(filter),
    connections: () => this.#connectionViews(),
  });

  constructor(services: Record<string, ListenerView[]>) {
    this.services = services;
  }

  *#serviceViews(filter: ServiceFilter): Iterable<ServiceView> {
    for (const [key, listeners] of Object.entries(this.services)) {
      const [namespace = '', service = ''] = key.split('/');
      if ((filter.namespace ?? namespace) !== namespace || (filter.service ?? service) !== service) continue;
      const name = key as ServicePortName;
      yield { ...this.#example, name, namespace, service, listeners: listeners.map((each) => this.#shown(each)) };
    }
  }

  async *#connectionViews(): AsyncIterable<readonly ConnectionView[]> {
    this.listed++;
    // One at a time, among those of another endpoint and one that is dialling for the first time.
    for (const name of this.connections) {
      const to = (endpoint?: Endpoint) => ({ name, ...(endpoint && { endpoint }) }) as ConnectionView;
      yield [to(parseEndpoint(OTHER)), to(parseEndpoint(POD)), to()];
    }
  }

  async *ask<C extends CommandName>(command: C, params: Commands[C]['params']): AsyncIterable<Commands[C]['piece']> {
    this.asked.push(`${command} ${JSON.stringify(params)}`);
    if (this.failures > 0) {
      this.failures--;
      throw new Error('nobody listens');
    }
    if (command === 'drain') {
      yield (await endpointUsers(parseEndpoint(POD), this.#view, new ManualClock())) as Commands[C]['piece'];
      if (!('isAgain' in params)) this.drained.push(POD);
      return;
    }
    assert.equal(command, 'services');
    yield [...this.#view.services(params as Commands['services']['params'])] as unknown as Commands[C]['piece'];
  }

  /** Sets what is open to the pod everywhere. */
  set open(active: number) {
    for (const [name, listeners] of Object.entries(this.services)) {
      this.services[name] = listeners.map(({ set, endpoints }) => {
        const open = endpoints.map((each) => [`${each.endpoint.address}:${each.endpoint.port}`, each.counters?.active]);
        return listener(set, {
          ...Object.fromEntries(open),
          ...(POD in Object.fromEntries(open) && { [POD]: active }),
        });
      });
    }
  }

  #shown(given: ListenerView): ListenerView {
    const endpoints = given.endpoints.map((each) => {
      const isDrained = this.drained.includes(`${each.endpoint.address}:${each.endpoint.port}`);
      return isDrained ? { ...each, state: 'drained' as const } : each;
    });
    return { ...given, endpoints };
  }
}

function start(proxy: FakeProxy, argv: readonly string[], { isTTY = false } = {}) {
  const terminal = new RecordingTerminal({ isTTY });
  const clock = new ManualClock();
  const interrupts = new Set<() => void>();
  const exit = runCommand(DRAIN, argv, terminal, {
    clock,
    connect: () => proxy,
    onInterrupt: (handler) => {
      interrupts.add(handler);
      return () => interrupts.delete(handler);
    },
  });
  // Whoever awaits it is told; nobody else is to be ended by it.
  exit.catch(() => {});
  const waits = () => until('it waits', () => clock.pendingTimers === 1);
  const next = async () => {
    clock.advance(1_000);
    await settle();
  };
  const interrupt = () => {
    for (const handler of interrupts) handler();
  };
  return { exit, terminal, clock, interrupts, interrupt, waits, next };
}

describe('drain', () => {
  test('says which Services give the endpoint up, and which connections they leave', async () => {
    const proxy = new FakeProxy({
      'default/web': [listener('own', { [POD]: 3, [OTHER]: 1 })],
      'shop/web': [listener('own', { [OTHER]: 4, [POD]: 0 })],
      'shop/dns': [listener('own', { [OTHER]: 4 })],
    });
    const { exit, terminal } = start(proxy, [POD]);
    assert.equal(await exit, 0);
    assert.deepEqual(proxy.drained, [POD]);
    assert.equal(
      terminal.printed,
      `${POD} is drained on this node: no new connections from default/web (3 connections), shop/web.\n`,
    );
    assert.equal(terminal.complained, '');
  });

  test('names ten of many', async () => {
    const names = Array.from({ length: 13 }, (_, index) => `default/s${index}`);
    const proxy = new FakeProxy(
      Object.fromEntries(names.map((name) => [name, [listener('own', { [POD]: 0, [OTHER]: 0 })]])),
    );
    const { exit, terminal } = start(proxy, [POD]);
    await exit;
    assert.match(terminal.printed, /default\/s0, .*, default\/s9 and 3 others\.\n$/);
  });

  test('warns of a Service that has nothing else', async () => {
    const proxy = new FakeProxy({
      'default/one': [listener('own', { [POD]: 0 })],
      'default/rest': [listener('own', { [POD]: 0, [OTHER]: 0 }, { [OTHER]: 'draining' })],
      'default/gone': [listener('own', { [POD]: 0 }, { [POD]: 'draining' })],
      'default/local': [listener('own', { [POD]: 0, [OTHER]: 0 }), listener('local', { [POD]: 0 })],
    });
    const { exit, terminal } = start(proxy, [POD]);
    assert.equal(await exit, 0);
    assert.deepEqual(terminal.complained.split('\n'), [
      'Warning: default/one has no other endpoint, so its clients are refused.',
      'Warning: default/rest has no other endpoint, so its clients are refused.',
      'Warning: default/local has no other endpoint on this node, so clients that the policy Local keeps here are refused.',
      '',
    ]);
  });

  test('is remembered for an endpoint that nobody has and nothing goes to', async () => {
    const proxy = new FakeProxy({ 'default/web': [listener('own', { [OTHER]: 0 })] });
    const { exit, terminal } = start(proxy, [POD, '--timeout', '5m']);
    assert.equal(await exit, 0);
    assert.deepEqual(proxy.drained, [POD]);
    assert.match(terminal.printed, /no Service has it now/);
  });

  test('does nothing with arguments that are wrong', async () => {
    const proxy = new FakeProxy({});
    const bad = [[], ['web'], [POD, '--timeout', 'soon'], [POD, '--timeout=-5s'], [POD, OTHER], [POD, '--force']];
    for (const argv of bad) await assert.rejects(start(proxy, argv).exit, { name: 'UsageError' }, argv.join(' '));
    assert.deepEqual(proxy.asked, []);
  });
});

describe('drain --timeout', () => {
  function busy() {
    return new FakeProxy({
      'default/web': [listener('own', { [POD]: 2, [OTHER]: 5 }), listener('local', { [POD]: 1, [OTHER]: 0 })],
      'default/dns': [listener('own', { [OTHER]: 1 })],
    });
  }

  test('ends when the last connection has', async () => {
    const proxy = busy();
    const { exit, terminal, waits, next, clock, interrupts } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    proxy.open = 1;
    await next();
    proxy.open = 0;
    await next();
    assert.equal(await exit, 0);
    assert.match(terminal.printed, /\nAll connections to 10\.244\.1\.7:8080 have ended\.\n$/);
    assert.deepEqual([clock.pendingTimers, interrupts.size], [0, 0]);
  });

  test('asks the proxy each second, which looks through the connections once the counters say that none is left', async () => {
    const proxy = busy();
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    assert.equal(proxy.listed, 0);
    proxy.open = 0;
    await next();
    assert.equal(await exit, 0);
    assert.equal(proxy.listed, 1);
    const again = 'drain {"endpoint":{"address":"10.244.1.7","port":8080},"isAgain":true}';
    assert.deepEqual(proxy.asked.slice(1), [again, again]);
  });

  test('fails when connections are left then, and leaves the endpoint drained', async () => {
    const proxy = busy();
    const { exit, terminal, waits, next, clock } = start(proxy, [POD, '--timeout', '2500ms']);
    for (const _ of [1, 2]) {
      await waits();
      await next();
    }
    await waits();
    clock.advance(499);
    await settle();
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    assert.equal(await exit, 1);
    assert.equal(terminal.complained, `3 connections to ${POD} still open; it stays drained, until undrain.\n`);
    assert.deepEqual(
      proxy.asked.filter((command) => command.startsWith('undrain')),
      [],
    );
  });

  test('0 waits for as long as it takes', async () => {
    const proxy = busy();
    const { exit, waits, next, clock } = start(proxy, [POD, '--timeout', '0']);
    await waits();
    clock.advance(24 * 3_600_000);
    await settle();
    await waits();
    proxy.open = 0;
    await next();
    assert.equal(await exit, 0);
  });

  test('ends with Ctrl-C, which leaves the endpoint drained', async () => {
    const { exit, terminal, waits, interrupt, interrupts } = start(busy(), [POD, '--timeout', '1m']);
    await waits();
    interrupt();
    assert.equal(await exit, 130);
    assert.match(terminal.complained, /^3 connections .* stays drained, until undrain\.\n$/);
    assert.equal(interrupts.size, 0);
  });

  test('also with one that comes as soon as the endpoint is said to be drained', async () => {
    const { exit, terminal, interrupt } = start(busy(), [POD, '--timeout', '1m']);
    const { out } = terminal;
    Object.assign(terminal, {
      out: (text: string) => {
        out(text);
        interrupt();
      },
    });
    assert.equal(await exit, 130);
    assert.match(terminal.complained, /^3 connections .* stays drained, until undrain\.\n$/);
  });

  test('draws how many are left on a terminal, in one line, and nothing elsewhere', async () => {
    for (const isTTY of [true, false]) {
      const proxy = busy();
      const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '1m'], { isTTY });
      await waits();
      proxy.open = 1;
      await next();
      await waits();
      proxy.open = 0;
      await next();
      await exit;
      const drawn = terminal.printed.split('\n')[1];
      assert.equal(
        drawn,
        isTTY
          ? `Waiting for 3 connections to end, 0s so far${'\r\u001b[K'}Waiting for 2 connections to end, 1s so far${'\r\u001b[K'}All connections to ${POD} have ended.`
          : `All connections to ${POD} have ended.`,
      );
    }
  });

  test('goes on while a successor takes over, and gives up when nobody comes', async () => {
    const proxy = busy();
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    for (const _ of ['once', 'and again']) {
      proxy.failures = 10;
      for (let look = 0; look < 11; look++) await next();
      assert.equal(proxy.failures, 0);
    }
    proxy.failures = 11;
    for (let look = 0; look < 11; look++) await next();
    await assert.rejects(exit, /cannot say whether connections are left: nobody listens/);
  });

  test('fails when the endpoint is drained no longer', async () => {
    const proxy = busy();
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    proxy.drained.length = 0;
    await next();
    await assert.rejects(exit, /drained no longer: somebody gave it back, or the proxy was started anew/);
  });

  test('waits for the drain to take effect', async () => {
    const proxy = busy();
    proxy.open = 0;
    const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    proxy.drained.push = () => 0;
    await waits();
    assert.doesNotMatch(terminal.printed, /have ended/);
    proxy.drained[0] = POD;
    await next();
    assert.equal(await exit, 0);
  });

  test('does not tell of connections when the drain has not taken effect in time', async () => {
    const proxy = busy();
    proxy.open = 0;
    const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '1s']);
    proxy.drained.push = () => 0;
    await waits();
    await next();
    assert.equal(await exit, 1);
    assert.match(terminal.complained, /^Not all Services have given it up yet; it stays drained, until undrain\.$/m);
  });

  test('looks at the connections where the engine does not count', async () => {
    const proxy = new FakeProxy({ 'default/web': [listener('own', { [POD]: undefined, [OTHER]: undefined })] });
    proxy.connections.push('default/web');
    const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '2s']);
    for (const _ of [1, 2]) {
      await waits();
      await next();
    }
    assert.equal(await exit, 1);
    assert.equal(terminal.complained, `1 connection to ${POD} still open; it stays drained, until undrain.\n`);
  });

  const LISTED_AGAIN = [1, 2, 3, 4, 5];

  test('waits for connections to an endpoint that has left its Service', async () => {
    const proxy = busy();
    const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '1m'], { isTTY: true });
    await waits();
    proxy.services['default/web'] = [listener('own', { [OTHER]: 5 })];
    proxy.connections.push('default/web', 'default/web');
    await next();
    await waits();
    assert.match(terminal.printed, /Waiting for 2 connections to end, 1s so far$/);
    proxy.connections.length = 0;
    for (const _ of LISTED_AGAIN) {
      assert.equal(proxy.listed, 1, 'not every second');
      await waits();
      await next();
    }
    assert.equal(await exit, 0);
    assert.equal(proxy.listed, 2);
    assert.match(terminal.printed, /All connections to \S+ have ended\.\n$/);
  });

  test('waits for connections from before an endpoint went and came back, which its new counters do not have', async () => {
    const proxy = busy();
    const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '1s']);
    await waits();
    proxy.open = 0;
    proxy.connections.push('default/web', 'default/web', 'default/web');
    await next();
    assert.equal(await exit, 1);
    assert.equal(terminal.complained, `3 connections to ${POD} still open; it stays drained, until undrain.\n`);
  });

  test('waits for connections to an endpoint that no Service has any more', async () => {
    const proxy = new FakeProxy({ 'default/web': [listener('own', { [OTHER]: 0 })] });
    proxy.connections.push('default/web');
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    proxy.connections.length = 0;
    for (const _ of LISTED_AGAIN) await next();
    assert.equal(await exit, 0);
  });

  test('cannot tell of the connections that a Service leaves behind when it goes', async () => {
    const proxy = busy();
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    delete proxy.services['default/web'];
    await next();
    await assert.rejects(
      exit,
      /^Error: cannot say whether connections are left: default\/web had some, and nobody counts .*; \S+ stays drained$/,
    );
  });

  test('nor of those of an endpoint that had left the Service before that went', async () => {
    const proxy = busy();
    proxy.services['default/web'] = [listener('own', { [POD]: 0, [OTHER]: 5 })];
    proxy.connections.push('default/web');
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    delete proxy.services['default/web'];
    proxy.connections.length = 0;
    for (const _ of LISTED_AGAIN) await next();
    await assert.rejects(exit, /cannot say whether connections are left: default\/web had some/);
  });

  test('does not mind that a Service goes whose connections had ended', async () => {
    const proxy = busy();
    proxy.services['shop/web'] = [listener('own', { [POD]: 1 })];
    const { exit, waits, next } = start(proxy, [POD, '--timeout', '1m']);
    await waits();
    proxy.services['shop/web'] = [listener('own', { [POD]: 0 })];
    await next();
    await waits();
    delete proxy.services['shop/web'];
    proxy.open = 0;
    await next();
    assert.equal(await exit, 0);
  });

  test('prints no name that a terminal obeys', async () => {
    const proxy = new FakeProxy({ 'default/\u001b[2J': [listener('own', { [POD]: 1 })] });
    const { terminal, exit } = start(proxy, [POD]);
    await exit;
    assert.ok(!`${terminal.printed}${terminal.complained}`.includes('\u001b'));
  });
});
