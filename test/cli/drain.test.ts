import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Command } from '../../src/cli/command.ts';
import { DRAIN, UNDRAIN } from '../../src/cli/drain.ts';
import { endpointName } from '../../src/model/endpoint.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { EndpointUser } from '../../src/operate/control/endpoint-users.ts';
import type { CommandName, Commands, Control } from '../../src/operate/control/protocol.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle, until } from '../support/until.ts';
import { controlOf } from './control-of.ts';
import { RecordingTerminal } from './recording-terminal.ts';
import { runCommand } from './run-command.ts';

const POD = '10.244.1.7:8080';

/** A proxy that drains at once. Tests set its answers. */
class FakeProxy implements Control {
  /** Connections by Service port, for each that has the endpoint. */
  open: Record<string, number>;
  /** Services without the endpoint. */
  readonly served = new Set<string>();
  isDrained = false;
  /** A drain is in force when its answer comes. */
  takesEffect = true;
  isListed = false;
  /** The endpoint sets in which the endpoint is the only one. */
  onlyOneFor: EndpointUser['onlyOneFor'] = [];
  readonly asked: string[] = [];
  /** How many of the next questions fail. */
  failures = 0;

  constructor(open: Record<string, number>) {
    this.open = open;
  }

  async *ask<C extends CommandName>(command: C, params: Commands[C]['params']): AsyncIterable<Commands[C]['piece']> {
    this.asked.push(`${command} ${JSON.stringify(params)}`);
    if (this.failures > 0) {
      this.failures--;
      throw new Error('nobody listens');
    }
    if (command === 'drain' || command === 'endpoint') {
      yield { users: this.#users(), isListed: this.isListed } as unknown as Commands[C]['piece'];
      if (command === 'drain') this.isDrained = this.takesEffect;
      return;
    }
    const { namespace, service } = params as Commands['services']['params'];
    const name = `${namespace}/${service}`;
    if (name in this.open || this.served.has(name)) yield [{ name }] as unknown as Commands[C]['piece'];
  }

  #users(): EndpointUser[] {
    const shared = { isActive: !this.isDrained, onlyOneFor: this.onlyOneFor };
    return Object.entries(this.open).map(([name, connections]) => {
      return { name: name as ServicePortName, connections, ...shared };
    });
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
  // In tests that do not await it, a rejection must not end the process.
  exit.catch(() => {});
  const waits = () => until('it waits', () => clock.pendingTimers === 1);
  const next = async (ms = 1_000) => {
    clock.advance(ms);
    await settle();
  };
  const interrupt = () => {
    for (const handler of interrupts) handler();
  };
  return { exit, terminal, clock, interrupts, interrupt, waits, next };
}

/** Waits for the connections of these Services. */
async function waiting(open: Record<string, number>, { timeout = '1m', isTTY = false } = {}) {
  const proxy = new FakeProxy(open);
  const run = start(proxy, [POD, '--timeout', timeout], { isTTY });
  await run.waits();
  return { proxy, ...run };
}

describe('drain', () => {
  async function drained(proxy: FakeProxy) {
    const { exit, terminal } = start(proxy, [POD]);
    assert.equal(await exit, 0);
    assert.deepEqual(proxy.asked, ['drain {"endpoint":{"address":"10.244.1.7","port":8080}}']);
    return terminal;
  }

  test('shows which Services had the endpoint, and how many connections are left', async () => {
    const { printed, complained } = await drained(new FakeProxy({ 'default/web': 3, 'default/one': 1, 'shop/web': 0 }));
    const services = 'default/web (3 connections), default/one (1 connection), shop/web';
    assert.equal(printed, `${POD} is drained on this node: no new connections from ${services}.\n`);
    assert.equal(complained, '');
  });

  test('names ten of many Services', async () => {
    const many = Array.from({ length: 13 }, (_, index) => [`default/s${index}`, 0]);
    const { printed } = await drained(new FakeProxy(Object.fromEntries(many)));
    assert.match(printed, /default\/s0, .*, default\/s9 and 3 others\.\n$/);
  });

  test('warns of a Service without another endpoint', async () => {
    const proxy = new FakeProxy({ 'default/web': 0 });
    proxy.onlyOneFor = ['own', 'local'];
    const onThisNode = 'on this node that answers, so clients that the policy Local keeps here are refused';
    assert.deepEqual((await drained(proxy)).complained.split('\n'), [
      'Warning: default/web has no other endpoint that answers, so its clients are refused.',
      `Warning: default/web has no other endpoint ${onThisNode}.`,
      '',
    ]);
  });

  test('is possible by force for an endpoint that no Service has', async () => {
    const proxy = new FakeProxy({});
    const { exit, terminal } = start(proxy, [POD, '--force']);
    assert.equal(await exit, 0);
    assert.deepEqual(proxy.asked, ['drain {"endpoint":{"address":"10.244.1.7","port":8080},"forced":true}']);
    assert.match(terminal.printed, /no Service has it now/);
    assert.equal(await start(new FakeProxy({}), [POD, '--force', '--timeout', '5m']).exit, 0);
  });

  test('does nothing with arguments that are wrong', async () => {
    const proxy = new FakeProxy({});
    const bad = [[], ['web'], [POD, '--timeout', 'soon'], [POD, '--timeout=-5s'], [POD, POD], [POD, '--forse']];
    for (const argv of bad) await assert.rejects(start(proxy, argv).exit, { name: 'UsageError' }, argv.join(' '));
    assert.deepEqual(proxy.asked, []);
  });

  test('prints no control characters of a name', async () => {
    const { printed } = await drained(new FakeProxy({ 'default/\u001b[2J': 1 }));
    assert.ok(!printed.includes('\u001b'));
  });
});

describe('drain --timeout', () => {
  test('ends with the last connection, and shows on a terminal how many are left', async () => {
    for (const isTTY of [true, false]) {
      const { proxy, exit, terminal, waits, next, clock, interrupts } = await waiting({ 'default/web': 3 }, { isTTY });
      proxy.open = { 'default/web': 1 };
      await next();
      await waits();
      proxy.open = { 'default/web': 0 };
      await next();
      assert.equal(await exit, 0);
      const clear = '\r\u001b[K';
      const [first, second] = ['3 connections to end, 0s so far', '1 connection to end, 1s so far'];
      const drawn = isTTY ? `Waiting for ${first}${clear}Waiting for ${second}${clear}` : '';
      assert.equal(terminal.printed.split('\n')[1], `${drawn}All connections to ${POD} have ended.`);
      assert.deepEqual([clock.pendingTimers, interrupts.size], [0, 0]);
    }
  });

  test('fails when connections are left at its end, and the endpoint stays drained', async () => {
    const { proxy, exit, terminal, waits, next, clock } = await waiting({ 'a/b': 1, 'a/c': 2 }, { timeout: '2500ms' });
    for (const _ of [1, 2]) {
      await next();
      await waits();
    }
    await next(499);
    assert.equal(clock.pendingTimers, 1);
    clock.advance(1);
    assert.equal(await exit, 1);
    assert.equal(terminal.complained, `3 connections to ${POD} still open; it stays drained, until undrain.\n`);
    assert.ok(!proxy.asked.some((command) => command.startsWith('undrain')));
  });

  test('0 waits without a limit', async () => {
    const { proxy, exit, waits, next } = await waiting({ 'default/web': 3 }, { timeout: '0' });
    await next(24 * 3_600_000);
    await waits();
    proxy.open = {};
    proxy.served.add('default/web');
    await next();
    assert.equal(await exit, 0);
  });

  test('ends with Ctrl-C, and the endpoint stays drained', async () => {
    const { exit, terminal, interrupt, interrupts } = await waiting({ 'default/web': 3 });
    interrupt();
    assert.equal(await exit, 130);
    assert.match(terminal.complained, /^3 connections .* stays drained, until undrain\.\n$/);
    assert.equal(interrupts.size, 0);
  });

  test('ends with a Ctrl-C as early as the message that the endpoint is drained', async () => {
    const { exit, terminal, interrupt } = start(new FakeProxy({ 'default/web': 3 }), [POD, '--timeout', '1m']);
    const { out } = terminal;
    Object.assign(terminal, {
      out: (text: string) => {
        out(text);
        interrupt();
      },
    });
    assert.equal(await exit, 130);
  });

  test('goes on while a successor takes over, and gives up when no proxy answers', async () => {
    const { proxy, exit, next } = await waiting({ 'default/web': 3 });
    for (const _ of ['once', 'and again']) {
      proxy.failures = 10;
      for (let look = 0; look < 11; look++) await next();
      assert.equal(proxy.failures, 0);
    }
    proxy.failures = 11;
    for (let look = 0; look < 11; look++) await next();
    await assert.rejects(exit, /cannot say whether connections are left: nobody listens/);
  });

  test('fails when the endpoint is no longer drained', async () => {
    const { proxy, exit, next } = await waiting({ 'default/web': 3 });
    proxy.isDrained = false;
    await next();
    await assert.rejects(exit, /no longer drained: it was undrained, or the proxy was restarted/);
  });

  test('waits until the drain takes effect, but not longer than its time', async () => {
    for (const inTime of [true, false]) {
      const proxy = new FakeProxy({ 'default/web': 0 });
      proxy.takesEffect = false;
      const { exit, terminal, waits, next } = start(proxy, [POD, '--timeout', '1s']);
      await waits();
      assert.doesNotMatch(terminal.printed, /have ended/);
      proxy.isDrained = inTime;
      await next();
      assert.equal(await exit, inTime ? 0 : 1);
      if (!inTime) assert.match(terminal.complained, /^Not all Services have taken it out yet; it stays drained/m);
    }
  });

  test('asks less often where the proxy has to look through all connections', async () => {
    const { proxy, exit, waits, next } = await waiting({ 'default/web': 3 });
    proxy.isListed = true;
    await next();
    await waits();
    const asked = proxy.asked.length;
    for (let second = 0; second < 4; second++) await next();
    assert.equal(proxy.asked.length, asked);
    proxy.open = { 'default/web': 0 };
    await next();
    assert.equal(await exit, 0);
  });

  test('fails when a Service with connections is deleted, as these are not counted any more', async () => {
    const { proxy, exit, next } = await waiting({ 'default/web': 3, 'shop/web': 1 });
    proxy.open = { 'shop/web': 0 };
    await next();
    const why = /^Error: cannot say whether connections are left: default\/web had some, and .*; \S+ stays drained$/;
    await assert.rejects(exit, why);
  });

  test('goes on when a Service without connections is deleted', async () => {
    const { proxy, exit, waits, next } = await waiting({ 'default/web': 3, 'shop/web': 1 });
    proxy.open = { 'default/web': 3, 'shop/web': 0 };
    await next();
    await waits();
    proxy.open = { 'default/web': 0 };
    await next();
    assert.equal(await exit, 0);
  });
});

describe('by what else an endpoint is named', () => {
  /** What is drained, or put back, in which order; the Services are those of a fake view. */
  async function named(command: typeof DRAIN | typeof UNDRAIN, argument: string, drained: readonly string[] = []) {
    const view = new FakeView();
    view.nodeChanges = { drained };
    const control = controlOf(view);
    const done: string[] = [];
    const ask: Control['ask'] = (name, params) => {
      if (name !== 'drain' && name !== 'undrain') return control.ask(name, params);
      done.push(endpointName((params as Commands['undrain']['params']).endpoint));
      return (async function* () {
        yield (name === 'drain' ? { users: [], isListed: false } : { wasDrained: true }) as never;
      })();
    };
    const tools = { clock: new ManualClock(), connect: () => ({ ask }), onInterrupt: () => () => {} };
    await runCommand(command as Command, argument.split(' '), new RecordingTerminal(), tools);
    return done;
  }
  const WEB = ['10.244.0.1:8080', '10.244.0.2:8080', '10.244.0.3:8080'];

  test('a Service, or one of its ports, is all of its endpoints', async () => {
    assert.deepEqual(await named(DRAIN, 'default/web'), WEB);
    assert.deepEqual(await named(UNDRAIN, 'default/web:http'), WEB);
  });

  test('an address is all of its ports, also those that are drained and that no Service has', async () => {
    assert.deepEqual(await named(DRAIN, '10.244.0.2'), ['10.244.0.2:8080']);
    assert.deepEqual(await named(UNDRAIN, '10.244.0.2', ['10.244.0.2:99', '10.244.0.3:99']), [
      '10.244.0.2:8080',
      '10.244.0.2:99',
    ]);
    assert.deepEqual(await named(UNDRAIN, '[fd00::1]', ['[fd00::1]:99']), ['[fd00::1]:99']);
  });

  test('a name that nothing has is an error that says what is there', async () => {
    await assert.rejects(named(DRAIN, 'default/wbe'), /^.*no Service "default\/wbe"; did you mean default\/web\?$/);
    await assert.rejects(named(DRAIN, 'shop/empty'), /"shop\/empty" has no endpoints/);
    await assert.rejects(named(DRAIN, '10.244.9.9'), /no Service has an endpoint at 10\.244\.9\.9$/);
    const forced = named(DRAIN, '10.244.9.9 --force');
    await assert.rejects(
      forced,
      /no Service has an endpoint at 10\.244\.9\.9; --force needs a port: 10\.244\.9\.9:8080/,
    );
    await assert.rejects(named(DRAIN, 'web'), /not an address with a port/);
  });
});
