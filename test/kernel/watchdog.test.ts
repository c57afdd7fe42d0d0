import assert from 'node:assert/strict';
import { test } from 'node:test';
import { watchdogPeriodMs } from '../../src/kernel/watchdog.ts';

const FIRST = { pid: 42, isSuccessor: false };
const SUCCESSOR = { pid: 43, isSuccessor: true };

test('a third of the time after which systemd acts', () => {
  assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '60000000', WATCHDOG_PID: '42' }, FIRST), 20_000);
  assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '3000000' }, FIRST), 1000);
});

test('never so long that Node would take it for no time at all', () => {
  const period = watchdogPeriodMs({ WATCHDOG_USEC: '18446744073709551614' }, FIRST)!;
  assert.ok(period < 2 ** 31, `${period}`);
});

test('who is meant: the process that is named, all where none is, and who took over from it', () => {
  const named = { WATCHDOG_USEC: '3000000', WATCHDOG_PID: '42' };
  assert.equal(watchdogPeriodMs(named, FIRST), 1000);
  assert.equal(watchdogPeriodMs(named, SUCCESSOR), 1000);
  assert.equal(watchdogPeriodMs(named, { pid: 43, isSuccessor: false }), undefined);
  assert.equal(watchdogPeriodMs({ ...named, WATCHDOG_PID: '' }, { pid: 43, isSuccessor: false }), 1000);
});

test('none where there is no watchdog, or none that can be understood', () => {
  for (const text of [undefined, '', '0', '-1', '1e6', '1.5', '10s', ' 1', '0x10']) {
    const env = text === undefined ? {} : { WATCHDOG_USEC: text };
    for (const process of [FIRST, SUCCESSOR]) assert.equal(watchdogPeriodMs(env, process), undefined, text);
  }
});
