import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { ServiceManager, watchdogPeriodMs } from '../../src/kernel/service-manager.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { NotifySocket } from '../support/notify-socket.ts';
import { settle, until } from '../support/until.ts';

const FED = 'WATCHDOG=1';
const PID = 42;
/** More datagrams than any queue takes (`net.unix.max_dgram_qlen`). */
const QUEUE = 10_000;
/** The predecessor's. */
const OTHER_PID = 41;
/** What systemd sets for `WatchdogSec=60`. */
const WATCHED = { WATCHDOG_USEC: '60000000', WATCHDOG_PID: String(PID) };

function manager(path: string | undefined, env: NodeJS.ProcessEnv = {}, isSuccessor = false) {
  const log = new RecordingLog();
  const clock = new ManualClock();
  const options = { pid: PID, isSuccessor, clock, uptimeMs: () => 12.3456789, log };
  const all = path === undefined ? env : { ...env, NOTIFY_SOCKET: path };
  return { log, clock, manager: new ServiceManager({ env: all, ...options }) };
}

async function listen(t: TestContext, path = socketPath(t)): Promise<NotifySocket> {
  const socket = await NotifySocket.listen(path);
  t.after(() => socket.close());
  return socket;
}

function socketPath(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'notify-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return join(folder, 'socket');
}

for (const [what, pathOf] of [
  ['a path', socketPath],
  ['an abstract name', () => `@kup-test-${process.pid}`],
] as const) {
  test(`systemd is notified of each state at ${what}`, async (t) => {
    const socket = await listen(t, pathOf(t));
    const { manager: systemd, log } = manager(socket.path);
    await systemd.ready();
    await systemd.reloading();
    await systemd.successor(77);
    await systemd.stopping();
    await until('all to arrive', () => socket.lines.length >= 4);
    assert.deepEqual(socket.lines, ['READY=1', 'RELOADING=1 MONOTONIC_USEC=12345 STATUS=', 'MAINPID=77', 'STOPPING=1']);
    assert.deepEqual(log.lines, []);
  });
}

test('without NOTIFY_SOCKET nothing is sent', async () => {
  for (const path of [undefined, '']) {
    const { manager: systemd, log, clock } = manager(path, WATCHED);
    await systemd.ready();
    assert.deepEqual(log.lines, []);
    assert.equal(clock.pendingTimers, 0);
  }
});

describe('the watchdog', () => {
  test('is fed three times per timeout, from readiness until the end', async (t) => {
    const socket = await listen(t);
    const { manager: systemd, log, clock } = manager(socket.path, WATCHED);
    clock.advance(60_000);
    await systemd.ready();
    clock.advance(19_999);
    await systemd.reloading();
    clock.advance(1);
    clock.advance(40_000);
    await systemd.stopping();
    clock.advance(600_000);
    const expected = ['READY=1', FED, 'RELOADING=1 MONOTONIC_USEC=12345 STATUS=', FED, FED, FED, 'STOPPING=1'];
    await until('the last to arrive', () => socket.lines.includes('STOPPING=1'));
    assert.deepEqual(socket.lines, expected);
    assert.equal(clock.pendingTimers, 0);
    assert.deepEqual(log.lines, []);
  });

  test('is handed to a successor, which has the environment of the first process', async (t) => {
    const socket = await listen(t);
    const old = manager(socket.path, { ...WATCHED, WATCHDOG_PID: String(OTHER_PID) }, true);
    await old.manager.ready();
    await old.manager.successor(77);
    old.clock.advance(600_000);
    assert.equal(old.clock.pendingTimers, 0);
    await old.manager.stopping();
    await until('the last to arrive', () => socket.lines.includes('STOPPING=1'));
    assert.deepEqual(socket.lines, ['READY=1', FED, 'MAINPID=77', 'STOPPING=1']);
  });

  test('is fed as before when a hand-over has failed', async (t) => {
    const socket = await listen(t);
    const { manager: systemd, clock } = manager(socket.path, WATCHED);
    await systemd.ready();
    await systemd.reloading();
    clock.advance(10_000);
    await systemd.ready();
    assert.equal(clock.pendingTimers, 1);
    clock.advance(20_000);
    await systemd.stopping();
    await until('the last to arrive', () => socket.lines.includes('STOPPING=1'));
    assert.deepEqual(socket.lines, ['READY=1', FED, socket.lines[2], 'READY=1', FED, FED, 'STOPPING=1']);
  });

  test('is fed again when systemd listens again; the failure is logged once', async (t) => {
    const path = socketPath(t);
    const { manager: systemd, log, clock } = manager(path, WATCHED);
    await systemd.ready();
    clock.advance(20_000);
    assert.equal(log.of('warn').length, 1);
    const socket = await listen(t, path);
    clock.advance(20_000);
    await until('it to arrive', () => socket.lines.length === 1);
    assert.deepEqual(socket.lines, [FED]);
    assert.equal(log.of('warn').length, 1);
  });
});

test('without a listener, the failure is logged once', async (t) => {
  for (const path of [socketPath(t), `/${'x'.repeat(200)}`]) {
    const { manager: systemd, log } = manager(path);
    await systemd.ready();
    await systemd.stopping();
    assert.equal(log.of('warn').length, 1);
  }
});

test('notifications wait for a busy systemd', async (t) => {
  const socket = await listen(t);
  const { manager: systemd, log, clock } = manager(socket.path);
  await socket.pause();
  let sent = 0;
  const sending: Promise<void>[] = [];
  // More than its queue takes.
  while (clock.pendingTimers === 0) {
    assert.ok(sent < QUEUE, 'it waits');
    sending.push(systemd.successor(sending.length).then(() => void sent++));
    await until('it to be sent, or wait', () => sent === sending.length || clock.pendingTimers === 1);
  }
  socket.resume();
  await until('it to read', () => socket.lines.length === sent);
  clock.advance(20);
  await Promise.all(sending);
  await until('the last to arrive', () => socket.lines.length === sending.length);
  assert.deepEqual(log.lines, []);
});

test('notifications give up after two seconds of a busy systemd', async (t) => {
  const socket = await listen(t);
  const { manager: systemd, log, clock } = manager(socket.path);
  await socket.pause();
  for (let sent = 0, tried = 1; clock.pendingTimers === 0; tried++) {
    assert.ok(sent < QUEUE, 'it waits');
    void systemd.ready().then(() => sent++);
    await until('it to be sent, or wait', () => sent === tried || clock.pendingTimers === 1);
  }
  for (let passedMs = 0; passedMs < 2_000; passedMs += 20) {
    clock.advance(20);
    await settle();
  }
  assert.equal(clock.pendingTimers, 0);
  assert.equal(log.of('warn').length, 1);
});

const FIRST = { pid: 42, isSuccessor: false };
const SUCCESSOR = { pid: 43, isSuccessor: true };

test('the watchdog period is a third of the timeout, in processes that systemd watches', () => {
  const named = { WATCHDOG_USEC: '3000000', WATCHDOG_PID: '42' };
  assert.equal(watchdogPeriodMs(named, FIRST), 1000);
  assert.equal(watchdogPeriodMs(named, SUCCESSOR), 1000);
  assert.equal(watchdogPeriodMs(named, { pid: 43, isSuccessor: false }), undefined);
  for (const pid of [{}, { WATCHDOG_PID: '' }]) {
    assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '3000000', ...pid }, { pid: 43, isSuccessor: false }), 1000);
  }
  const longest = watchdogPeriodMs({ WATCHDOG_USEC: '18446744073709551614' }, FIRST)!;
  assert.ok(longest < 2 ** 31, 'Node fires a longer timer at once');
});

test('without a valid WATCHDOG_USEC there is no watchdog', () => {
  for (const text of [undefined, '', '0', '-1', '1e6', '1.5', '10s', ' 1', '0x10']) {
    const env = text === undefined ? {} : { WATCHDOG_USEC: text };
    for (const process of [FIRST, SUCCESSOR]) assert.equal(watchdogPeriodMs(env, process), undefined, text);
  }
});
