import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ConfigurationWatch } from '../../src/app/configuration-watch.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { settle, until } from '../support/until.ts';

const IN_FORCE = 'one';

function watched(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'kup-configuration-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'config');
  const clock = new ManualClock();
  const log = new RecordingLog();
  const stopped = new AbortController();
  /** The times of the tries, and how to end the one that is under way. */
  const tries: number[] = [];
  let fail: (() => void) | undefined;
  const write = (text: string) => {
    // In one step: half of it must not be read.
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
  };
  write(IN_FORCE);
  const watch = new ConfigurationWatch({
    path,
    text: IN_FORCE,
    check: (text) => {
      if (text.startsWith('bad')) throw new Error(`${text} is wrong`);
    },
    replace: () => {
      assert.equal(fail, undefined, 'one try at a time');
      tries.push(clock.now());
      return new Promise((resolve) => {
        fail = () => {
          fail = undefined;
          resolve();
        };
      });
    },
    clock,
    log,
    signal: stopped.signal,
  });
  watch.start();
  const pass = async (ms: number) => {
    for (const end = clock.now() + ms; clock.now() < end; ) {
      clock.advance(Math.min(1_000, end - clock.now()));
      await settle(4);
    }
  };
  /** Lets time pass until the file has been read and this is so. */
  const reach = async (what: string, condition: () => boolean) => {
    await until(what, () => {
      if (!condition()) clock.advance(250);
      return condition();
    });
    await settle();
  };
  const failTry = async () => {
    assert.ok(fail !== undefined, 'a try is under way');
    fail();
    await settle();
  };
  return { watch, write, pass, reach, failTry, tries, log, stopped };
}

test('a change whose hand-over fails is tried again, ever more seldom, for as long as the file says it', async (t) => {
  const { watch, write, pass, reach, failTry, tries, log } = watched(t);
  assert.equal(watch.isInForce, true);
  write('two');
  await reach('a try', () => tries.length === 1);
  assert.equal(watch.isInForce, false);
  // A try may last.
  await pass(120_000);
  await failTry();
  for (const [n, waitMs] of [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000].entries()) {
    await pass(waitMs - 1_000);
    assert.equal(tries.length, n + 1);
    await pass(1_000);
    assert.equal(tries.length, n + 2);
    await failTry();
  }
  assert.equal(watch.isInForce, false);
  assert.deepEqual(log.of('warn').at(-1)?.fields['retryInMs'], 300_000);
  assert.deepEqual(log.of('error'), []);

  write(IN_FORCE);
  await reach('it is in force', () => watch.isInForce);
  await pass(600_000);
  assert.equal(tries.length, 9, 'nothing is to be done any more');
});

test('a file that changes again is tried at once, and one that is wrong never', async (t) => {
  const { watch, write, pass, reach, failTry, tries, log } = watched(t);
  write('two');
  await reach('a try', () => tries.length === 1);
  await failTry();
  await pass(5_000);
  await failTry();
  write('three');
  await reach('a third try', () => tries.length === 3);
  await failTry();
  write('bad');
  await reach('the error', () => log.of('error').length === 1);
  await pass(600_000);
  assert.deepEqual([tries.length, watch.isInForce], [3, false]);
  assert.deepEqual(
    log.of('error').map(({ fields }) => fields['err']),
    ['bad is wrong'],
  );
  write('three');
  await reach('a fourth try', () => tries.length === 4);
});

test('a process that stops tries no more', async (t) => {
  const { write, pass, reach, failTry, tries, log, stopped } = watched(t);
  write('two');
  await reach('a try', () => tries.length === 1);
  stopped.abort();
  const lines = log.lines.length;
  await failTry();
  await pass(600_000);
  assert.deepEqual([tries.length, log.lines.length], [1, lines]);
});
