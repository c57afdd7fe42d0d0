import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServicePortName } from '../../../src/model/service.ts';
import { DialErrors } from '../../../src/operate/view/dial-errors.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

function setUp() {
  const clock = new ManualClock();
  const heard: string[] = [];
  const observer = {
    turnedAway: () => heard.push('turnedAway'),
    dialFailed: () => heard.push('dialFailed'),
    limited: () => heard.push('limited'),
    listenerFailed: () => heard.push('listenerFailed'),
  };
  const errors = new DialErrors(observer, clock);
  const fail = (name: ServicePortName, backend: string, err: string) =>
    errors.dialFailed({ name, backend, reason: 'refused', err });
  return { clock, errors, fail, heard };
}

test('remembers the last error of each endpoint of each Service port for ten minutes', () => {
  const { clock, errors, fail } = setUp();
  fail('a/b', '10.0.0.1:80', 'first');
  clock.advance(1_000);
  fail('a/b', '10.0.0.1:80', 'second');
  assert.deepEqual(errors.last('a/b', '10.0.0.1:80'), { at: clock.wallNow(), err: 'second' });
  assert.equal(errors.last('a/b', '10.0.0.2:80'), undefined);
  assert.equal(errors.last('a/c', '10.0.0.1:80'), undefined);
  clock.advance(10 * 60_000);
  assert.equal(errors.last('a/b', '10.0.0.1:80'), undefined);
});

test('of more than a thousand endpoints, it forgets the one that it has not heard of for longest', () => {
  const { errors, fail } = setUp();
  for (let n = 0; n < 1_000; n++) fail('a/b', `10.0.0.1:${n}`, 'x');
  fail('a/b', '10.0.0.1:0', 'again');
  fail('a/b', '10.0.0.2:80', 'x');
  assert.equal(errors.last('a/b', '10.0.0.1:1'), undefined);
  assert.equal(errors.last('a/b', '10.0.0.1:0')?.err, 'again');
  assert.equal(errors.last('a/b', '10.0.0.2:80')?.err, 'x');
});

test('passes everything on', () => {
  const { errors, fail, heard } = setUp();
  const name: ServicePortName = 'a/b';
  errors.turnedAway({ name, client: 'c', reason: 'exhausted' });
  fail(name, 'e', 'x');
  errors.limited({ name, client: 'c', limit: 'flows-total' });
  errors.listenerFailed({ name, err: 'x' });
  assert.deepEqual(heard, ['turnedAway', 'dialFailed', 'limited', 'listenerFailed']);
});
