import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RecentEvents } from '../../../src/operate/view/recent-events.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

function setUp() {
  const log = new RecordingLog();
  const clock = new ManualClock();
  return { log, clock, events: new RecentEvents(log, clock) };
}

test('remembers what is said, with time and fields, and passes it on', () => {
  const { log, clock, events } = setUp();
  events.info('Started', { version: '1', node: undefined });
  clock.advance(1_000);
  events.warn('Odd');
  events.error('Wrong', { err: 'x', tries: 3 });
  const at = clock.wallNow();
  assert.deepEqual(events.events, [
    { id: 1, at: at - 1_000, level: 'info', message: 'Started', fields: { version: '1' } },
    { id: 2, at, level: 'warn', message: 'Odd', fields: {} },
    { id: 3, at, level: 'error', message: 'Wrong', fields: { err: 'x', tries: 3 } },
  ]);
  assert.deepEqual(
    log.lines.map(({ level, message }) => `${level} ${message}`),
    ['info Started', 'warn Odd', 'error Wrong'],
  );
});

test('lines of a higher verbosity are passed on and not remembered', () => {
  const { log, events } = setUp();
  events.v(4)?.info('detail');
  assert.equal(log.lines.length, 1);
  assert.deepEqual(events.events, []);
});

test('keeps the last 300 and numbers on', () => {
  const { events } = setUp();
  for (let n = 1; n <= 301; n++) events.info(`line ${n}`);
  assert.equal(events.events.length, 300);
  assert.deepEqual([events.events[0]?.id, events.events.at(-1)?.id], [2, 301]);
});

test('cuts what is very long', () => {
  const { events } = setUp();
  events.error('x'.repeat(10_000), { err: 'y'.repeat(10_000) });
  const [event] = events.events;
  assert.equal(event?.message.length, 501);
  assert.equal(String(event?.fields['err']).length, 501);
});

test('texts from elsewhere cannot steer a terminal or turn a line around', () => {
  const { events } = setUp();
  events.warn('Odd \u001b[2J', { err: 'from the server: \u009b31m\u202e\n' });
  const [event] = events.events;
  assert.equal(event?.message, 'Odd \\u001b[2J');
  assert.equal(event?.fields['err'], 'from the server: \\u009b31m\\u202e\\u000a');
});
