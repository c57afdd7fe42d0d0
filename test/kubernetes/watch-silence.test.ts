import assert from 'node:assert/strict';
import { test } from 'node:test';
import { awaitSilence, QUIET } from '../../src/kubernetes/watch-silence.ts';
import { FakeTransport } from '../fakes/fake-transport.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle } from '../support/until.ts';

function watchOver() {
  const clock = new ManualClock();
  const transport = new FakeTransport(clock);
  const gone: unknown[] = [];
  let alive = 0;
  const controller = new AbortController();
  const watch = { heardAt: clock.now(), isListing: false };
  const options = { transport, clock, onAlive: () => (alive += 1), signal: controller.signal };
  void awaitSilence(watch, options).then((reason) => reason !== undefined && gone.push(reason));
  const pass = async (ms: number) => {
    clock.advance(ms);
    await settle();
  };
  return { clock, transport, watch, stop: () => controller.abort(), gone, pass, alive: () => alive };
}

test('a watch that is silent for 25 s makes the server be asked, and lives on when it answers', async () => {
  const { transport, gone, pass, alive } = watchOver();
  await pass(24_999);
  assert.equal(transport.probes, 0);
  await pass(1);
  assert.equal(transport.probes, 1);
  await pass(25_000);
  assert.equal(transport.probes, 2);
  assert.deepEqual([gone, alive()], [[], 2]);
});

test('a probe that fails ends it, with the reason, once', async () => {
  const { transport, gone, pass, clock } = watchOver();
  const error = new Error('no answer');
  transport.onProbe = () => Promise.reject(error);
  await pass(25_000);
  assert.deepEqual(gone, [error]);
  await pass(600_000);
  assert.equal(gone.length, 1);
  assert.equal(clock.pendingTimers, 0);
});

test('while lines come nobody is asked', async () => {
  const { transport, watch, clock, pass } = watchOver();
  for (let n = 0; n < 10; n += 1) {
    await pass(20_000);
    watch.heardAt = clock.now();
  }
  assert.equal(transport.probes, 0);
});

test('bytes on any other connection show as well that the server is there', async () => {
  const { transport, clock, pass } = watchOver();
  await pass(20_000);
  transport.lastContactAt = clock.now();
  await pass(24_999);
  assert.equal(transport.probes, 0);
  await pass(1);
  assert.equal(transport.probes, 1);
});

test('a watch that misses every bookmark is given up although the server answers', async () => {
  const { gone, pass } = watchOver();
  for (let n = 0; n < 5; n += 1) await pass(25_000);
  assert.deepEqual(gone, []);
  await pass(25_000);
  assert.deepEqual(gone, [QUIET]);
});

for (const outcome of ['fails', 'succeeds'] as const) {
  test(`nothing happens after it is stopped, not even when a probe that was under way ${outcome}`, async () => {
    const { transport, stop, gone, pass, clock, alive } = watchOver();
    let finish: () => void = () => {};
    transport.onProbe = () =>
      new Promise((resolve, reject) => {
        finish = outcome === 'fails' ? () => reject(new Error('no answer')) : resolve;
      });
    await pass(25_000);
    stop();
    finish();
    await settle();
    assert.deepEqual([gone, alive(), clock.pendingTimers], [[], 0, 0]);
  });
}
