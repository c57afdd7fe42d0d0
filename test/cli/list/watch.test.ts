import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { LIST } from '../../../src/cli/list/list.ts';
import type { ServiceView } from '../../../src/model/view.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { served } from '../../operate/control/served.ts';
import { settle } from '../../support/until.ts';
import { controlOf } from '../control-of.ts';
import { PseudoTerminal } from '../pseudo-terminal.ts';
import { RecordingTerminal } from '../recording-terminal.ts';
import { runCommand } from '../run-command.ts';

/** What the Services carry: connections and bytes a second, open connections. */
type Loads = Readonly<Record<string, readonly [connections: number, bytes: number, active: number]>>;

class Loaded extends FakeView {
  loads: Loads = {};

  override *services(filter = {}): Iterable<ServiceView> {
    for (const view of super.services(filter)) {
      const [connections = 0, sentBytes = 0, active = 0] = this.loads[view.service] ?? [];
      yield {
        ...view,
        counters: { ...view.counters, active },
        rates: { connections, sentBytes, receivedBytes: 0, failures: 0 },
      };
    }
  }
}

/** Watches until it is interrupted. `next` gives what the next look printed. */
function watch(
  t: TestContext,
  argv: string,
  { isTTY = false, view = new Loaded() }: { isTTY?: boolean; view?: Loaded } = {},
) {
  const terminal = new RecordingTerminal({ isTTY });
  const clock = new ManualClock();
  let interrupt = () => {};
  let isAway = false;
  const control = controlOf(view);
  const connect = () => ({
    ask: ((...question: Parameters<typeof control.ask>) => {
      if (isAway) throw new Error('nobody listens');
      return control.ask(...question);
    }) as typeof control.ask,
  });
  const onInterrupt = (handler: () => void) => {
    interrupt = handler;
    return () => {
      interrupt = () => {};
    };
  };
  const code = runCommand(LIST, ['--watch', ...argv.split(' ').filter(Boolean)], terminal, {
    clock,
    connect,
    onInterrupt,
  });
  code.catch(() => {});
  t.after(() => interrupt());
  let seen = 0;
  const next = async () => {
    if (seen > 0) clock.advance(2_000);
    await settle();
    const text = terminal.printed.slice(seen);
    seen = terminal.printed.length;
    return text;
  };
  const leave = (away: boolean) => {
    isAway = away;
  };
  return { terminal, view, code, next, leave, clock, interrupt: () => interrupt() };
}

function names(text: string): string[] {
  return [...new Set(text.match(/(default|kube-system|shop)\/\w+/g))];
}

test('Services that are not ok come first, then the busiest, repeatedly until Ctrl-C, which exits with 0', async (t) => {
  const { view, next, interrupt, code, terminal, clock } = watch(t, '');
  view.loads = { web: [1, 0, 5], dns: [0, 700, 9], empty: [0, 0, 0] };
  const first = await next();
  assert.match(first, /^Kube userspace proxy version 0\.1\.0 \(node=node-1\), 3 Services by rate at \d\d:\d\d:\d\d\n/);
  assert.match(first, /\nProt +Active +CPS +InBPS +OutBPS +FailPS Service\n/);
  assert.match(first, /\nUDP +9 +0 +0 +700 +0 kube-system\/dns:dns\n/);
  assert.match(first, / shop\/empty \(empty\)\n/);
  assert.deepEqual(names(first), ['shop/empty', 'default/web', 'kube-system/dns']);
  view.loads = { dns: [2, 0, 0] };
  assert.deepEqual(names(await next()), ['shop/empty', 'kube-system/dns', 'default/web']);
  interrupt();
  assert.equal(await code, 0);
  assert.equal(clock.pendingTimers, 0);
  assert.equal(terminal.complained, '');
});

test('the order can be chosen, and Services be filtered as in the list', async (t) => {
  const view = new Loaded();
  view.loads = { web: [5, 5, 1], dns: [1, 1, 2], empty: [9, 9, 0] };
  const namesOf = async (argv: string) => names(await watch(t, argv, { view }).next());
  assert.deepEqual(await namesOf('--sort connections'), ['shop/empty', 'kube-system/dns', 'default/web']);
  assert.deepEqual(await namesOf('--problems'), ['shop/empty']);
  assert.deepEqual(await namesOf('--sort name'), ['default/web', 'kube-system/dns', 'shop/empty']);
  assert.deepEqual(await namesOf('shop/empty'), ['shop/empty']);
  const none = watch(t, 'nobody');
  assert.deepEqual(names(await none.next()), []);
  assert.match(none.terminal.complained, /^No Service that this node serves matches/);
});

test('--problems shows what is wrong with files, too, and on a terminal leaves room for the Services', async (t) => {
  const view = new Loaded({ services: 100 });
  const found = (n: number) => ({ level: 'warn', found: `file ${n} cannot be used`, advice: 'correct it' }) as const;
  view.nodeChanges = { findings: [found(1)] };
  const piped = watch(t, '--problems', { view });
  await piped.next();
  assert.equal(piped.terminal.complained, 'Problem: file 1 cannot be used; correct it.\n');
  const other = watch(t, '', { view });
  await other.next();
  assert.equal(other.terminal.complained, '');
  view.nodeChanges = { findings: Array.from({ length: 20 }, (_, n) => found(n)) };
  const lines = (await watch(t, '--problems', { view, isTTY: true }).next()).split('\n').slice(0, -1);
  assert.ok(lines.length <= 23, `${lines.length} lines`);
  assert.ok(lines.includes('Problem: file 0 cannot be used; correct it.'));
  assert.equal(lines.at(-1), '… 10 more');
});

test('-o wide shows states and what is wrong', async (t) => {
  const text = await watch(t, '-o wide').next();
  assert.match(text, / Service +State +Reason\n/);
  assert.match(text, / shop\/empty +empty +no endpoint is ready\n/);
});

test('on a terminal the table is redrawn in place and cut to the screen', async (t) => {
  const { next } = watch(t, '', { isTTY: true, view: new Loaded({ services: 100 }) });
  const first = await next();
  assert.ok(!first.includes('\u001b'));
  const lines = first.split('\n').slice(0, -1);
  assert.equal(lines.length, 23);
  assert.ok(lines.every(({ length }) => length <= 80));
  const again = await next();
  assert.ok(again.startsWith('\u001b[23A\r\u001b[J'));
  assert.equal(again.split('\n').length, 24);
});

test('a proxy that does not answer is asked again, and the table says so', async (t) => {
  const { next, leave, terminal } = watch(t, '', { isTTY: true });
  await next();
  leave(true);
  const away = await next();
  assert.match(away, /default\/web/);
  assert.match(away, /\nnobody listens; retrying\n$/);
  leave(false);
  assert.doesNotMatch(await next(), /retrying/);
  assert.equal(terminal.complained, '');
});

test('a proxy that is not there at the start is a failure', async (t) => {
  const { code, leave, interrupt } = watch(t, '');
  leave(true);
  await assert.rejects(code, /nobody listens/);
  interrupt();
});

for (const [argv, complaint] of [
  ['--stats', /--watch and --stats exclude each other/],
  ['-c', /--watch and --connection exclude each other/],
  ['-o json', /--watch is for readers/],
  ['--sort size', /must be one of "rate", "connections", "failures", "name"/],
] as const) {
  test(`--watch refuses ${argv}`, async (t) => await assert.rejects(watch(t, argv).code, complaint));
}

test('the program on a real terminal ends with 0 at Ctrl-C', async (t) => {
  const { path } = await served(t, new FakeView());
  const terminal = new PseudoTerminal(t, `src/main.ts list --watch --control-socket ${path}`);
  await terminal.has('shop/empty');
  await terminal.has('\u001b[J');
  terminal.type('\u0003');
  assert.equal(await terminal.code(), 0);
});

class Fresh extends Loaded {
  override *services(filter = {}): Iterable<ServiceView> {
    for (const { rates: _, ...view } of super.services(filter)) yield view;
  }
}

test('rates are dashes until one interval has passed', async (t) => {
  const text = await watch(t, '', { view: new Fresh() }).next();
  assert.match(text, /\nUDP +\d+( +-){4} kube-system\/dns:dns\n/);
});
