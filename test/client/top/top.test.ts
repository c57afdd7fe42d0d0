import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { ENTER, LEAVE } from '../../../src/client/top/screen.ts';
import { top } from '../../../src/client/top/top.ts';
import { served } from '../../control/served.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { controlOf } from '../control-of.ts';
import { RecordingTerminal } from '../recording-terminal.ts';
import { PseudoTerminal } from './pseudo-terminal.ts';

/** `top` on a terminal, with its first screen drawn. */
async function running(
  t: TestContext,
  options?: ConstructorParameters<typeof PseudoTerminal>[2],
): Promise<PseudoTerminal> {
  const { path } = await served(t, new FakeView({ services: 100 }));
  const terminal = new PseudoTerminal(t, `src/main.ts top --control-socket ${path}`, options);
  await terminal.has('q quit');
  return terminal;
}

function assertGivenBack({ written, settings }: PseudoTerminal): void {
  assert.ok(written.indexOf(ENTER) >= 0 && written.indexOf(ENTER) < written.indexOf('q quit'));
  assert.ok(written.lastIndexOf(LEAVE) > written.lastIndexOf('q quit'), 'the screen is that of before');
  assert.equal(settings.length, 2, written);
  assert.equal(settings[0], settings[1], 'the terminal is set as before');
}

describe('top on a terminal', () => {
  test('draws, obeys a key, and gives the terminal back', async (t) => {
    const terminal = await running(t);
    assert.ok(terminal.written.includes('team-10/svc-00050:http') === false);
    terminal.type('\u001b[F');
    await terminal.has('team-19/svc-00099:http');
    terminal.type('q');
    assert.equal(await terminal.code(), 0);
    assertGivenBack(terminal);
  });

  test('ends with Ctrl-C, which is a key there', async (t) => {
    const terminal = await running(t);
    terminal.type('\u0003');
    assert.equal(await terminal.code(), 0);
    assertGivenBack(terminal);
  });

  for (const [signal, code] of [
    ['SIGTERM', 143],
    ['SIGHUP', 129],
    ['SIGINT', 130],
  ] as const) {
    test(`gives the terminal back at ${signal}`, async (t) => {
      const terminal = await running(t);
      process.kill(terminal.pid, signal);
      assert.equal(await terminal.code(), code);
      assertGivenBack(terminal);
    });
  }

  test('gives the terminal back before it says why it fails', async (t) => {
    const terminal = new PseudoTerminal(t, 'test/client/top/programs/failing.ts');
    assert.equal(await terminal.code(), 1);
    const { written, settings } = terminal;
    assert.ok(written.indexOf('DRAWN') < written.indexOf(LEAVE));
    assert.ok(written.indexOf(LEAVE) < written.indexOf('Error: for the test'));
    assert.equal(written.split(LEAVE).length, 2, 'once');
    assert.equal(settings[0], settings[1]);
  });

  test('gives the terminal back while the program goes on', async (t) => {
    const terminal = new PseudoTerminal(t, 'test/client/top/programs/polite.ts');
    assert.equal(await terminal.code(), 0);
    const [before, ...later] = terminal.settings;
    assert.deepEqual(later, [before, before]);
  });

  test('leaves the screen at Ctrl-Z, and draws again where nothing stops it', async (t) => {
    const terminal = await running(t);
    const before = terminal.written.length;
    terminal.type('\u001a');
    await terminal.has(`${LEAVE}${ENTER}`, before);
    await terminal.has('q quit', before);
    terminal.type('q');
    assert.equal(await terminal.code(), 0);
    assertGivenBack(terminal);
  });

  test('draws again after it was stopped and goes on', async (t) => {
    const terminal = await running(t);
    const before = terminal.written.length;
    process.kill(terminal.pid, 'SIGCONT');
    await terminal.has('q quit', before);
  });

  test('follows the size of the terminal', async (t) => {
    const terminal = await running(t, { columns: 160, rows: 30 });
    assert.ok(terminal.written.includes('RETRY/S'));
    assert.ok(terminal.written.includes('\u001b[30;1H') && !terminal.written.includes('\u001b[31;1H'));
    const before = terminal.written.length;
    terminal.setColumns(80);
    await terminal.has('\u001b[2J', before);
    await terminal.has('q quit', before);
    assert.ok(!terminal.written.slice(before).includes('RETRY/S'));
  });

  test('takes 80 × 24 where the terminal does not know its size, as on a serial line', async (t) => {
    const terminal = await running(t, { columns: 0, rows: 0 });
    assert.ok(terminal.written.includes('\u001b[24;1H') && !terminal.written.includes('\u001b[25;1H'));
  });

  test('draws with what the terminal has', async (t) => {
    const plain = await running(t, { env: { LANG: 'C', NO_COLOR: '1' } });
    assert.ok(!plain.written.includes('█') && !plain.written.includes('[32m'));
    const rich = await running(t);
    assert.ok(rich.written.includes('█') && rich.written.includes('[32m'));
  });

  test('says on the ordinary screen when nobody is there to ask', async (t) => {
    const terminal = new PseudoTerminal(t, 'src/main.ts top --control-socket /nowhere/control.sock');
    assert.equal(await terminal.code(), 1);
    assert.ok(!terminal.written.includes(ENTER));
    assert.match(terminal.written, /kube-userspace-proxy top: .*\/nowhere\/control\.sock/);
  });
});

describe('top', () => {
  const tools = {
    clock: new ManualClock(),
    connect: () => controlOf(new FakeView()),
    onInterrupt: () => () => undefined,
  };

  test('points to list where there is no terminal', async () => {
    await assert.rejects(
      top([], new RecordingTerminal(), tools),
      /needs a terminal .*: use list, or list --rate, to print/,
    );
  });

  for (const [delay, complaint] of [
    ['soon', /--delay "soon": not a duration/],
    ['100ms', /--delay "100ms": must be at least 500ms/],
  ] as const) {
    test(`refuses a delay of ${delay}`, async () => {
      await assert.rejects(top(['-d', delay], new RecordingTerminal(), tools), complaint);
    });
  }
});
