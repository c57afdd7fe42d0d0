import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { SourceEvent } from '../../src/model/source.ts';
import { FakeCapture } from '../fakes/fake-capture.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { createController, serviceEvent } from '../support/controller.ts';
import { address } from '../support/model.ts';
import { microtasks } from '../support/until.ts';

function service(index: number): SourceEvent {
  return serviceEvent({ key: `shop/s${index}`, clusterIPs: [address(`10.96.${index >> 8}.${index & 255}`)] });
}

function gone(index: number): SourceEvent {
  return { kind: 'Service', key: `shop/s${index}`, value: undefined };
}

/** Work takes time: at each look at the clock, it is later. */
class BusyClock extends ManualClock {
  msPerLook = 0;
  #worked = 0;

  override now(): number {
    this.#worked += this.msPerLook;
    return super.now() + this.#worked;
  }
}

function harness() {
  const clock = new BusyClock();
  const log = new RecordingLog();
  const capture = new FakeCapture();
  const { dataPlane, health, controller } = createController({ clock, log, capture, minSyncPeriodMs: 100 });
  /** One turn of the event loop after the other, until `ms` have passed. */
  const settle = async (ms = 0) => {
    for (const step of [0, 0, ms, 0, 0, 0]) {
      await microtasks(200);
      clock.advance(step);
    }
    await microtasks(200);
  };
  return { clock, log, dataPlane, capture, health, controller, settle };
}

describe('the controller with many Services', () => {
  test('takes them in slices, adds changes made meanwhile, and then installs all rules at once', async () => {
    const h = harness();
    void h.controller.start();
    h.controller.apply(Array.from({ length: 1000 }, (_, i) => service(i)));
    h.controller.synced();
    await microtasks(200);
    h.clock.msPerLook = 3;
    h.clock.advance(0);
    await microtasks(200);
    const first = h.dataPlane.opened.length;
    assert.ok(first > 0 && first < 100, `${first} in the first turn`);
    h.controller.apply([gone(999), service(1000)]);
    let largest = 0;
    for (let turn = 0; turn < 1000 && h.capture.installed.size === 0; turn++) {
      const before = h.dataPlane.opened.length;
      h.clock.advance(0);
      await microtasks(200);
      largest = Math.max(largest, h.dataPlane.opened.length - before);
    }
    assert.ok(largest < 100, `${largest} in one turn`);
    assert.equal(h.capture.installed.size, 1000);
    assert.ok(h.capture.installed.has('shop/s1000') && !h.capture.installed.has('shop/s999'));
    assert.deepEqual(
      h.capture.calls.filter((call) => call !== 'canary' && call !== 'canary done'),
      ['ports', 'ports done', 'sync', 'sync done'],
    );
  });

  test('passes on to rules and listeners only what changed', async () => {
    const h = harness();
    void h.controller.start();
    h.controller.apply(Array.from({ length: 1000 }, (_, i) => service(i)));
    h.controller.synced();
    await h.settle(1_000);
    assert.equal(h.capture.installed.size, 1000);
    h.capture.applied.length = 0;
    h.dataPlane.opened.length = 0;
    h.controller.apply([gone(1), service(1001)]);
    await h.settle(1_000);
    assert.deepEqual(
      h.capture.applied.map(({ upserted, removed }) => [upserted.map(({ servicePort: { name } }) => name), removed]),
      [[['shop/s1001'], ['shop/s1']]],
    );
    assert.equal(h.dataPlane.opened.length, 1);
    assert.equal(h.dataPlane.listeners.size, 1000);
  });
});

describe('the controller after a previous run', () => {
  test('opens nothing before it knows the local ports of that run, and then reuses them', async () => {
    const h = harness();
    h.capture.leftPorts = [
      { name: 'shop/s2', set: 'own', protocol: 'TCP', localPort: 40_000 },
      { name: 'shop/s1', set: 'own', protocol: 'TCP', localPort: 40_001 },
      { name: 'shop/s9', set: 'own', protocol: 'TCP', localPort: 40_002, retiredForMs: 1_000 },
    ];
    const release = h.capture.hold();
    void h.controller.start();
    h.controller.apply([service(1), service(2), service(3)]);
    h.controller.synced();
    await h.settle(10_000);
    assert.equal(h.dataPlane.opened.length, 0);
    release();
    await h.settle();
    const portOf = (index: number) => h.dataPlane.listeners.get(`shop/s${index}`)?.port;
    assert.deepEqual([portOf(1), portOf(2), portOf(3)], [40_001, 40_000, 40_003]);
    assert.equal(h.capture.installed.size, 3);
  });

  test('retries reading them, and logs why it serves nothing', async () => {
    const h = harness();
    h.capture.fault = new Error('another program holds the lock');
    void h.controller.start();
    h.controller.apply([service(1)]);
    h.controller.synced();
    await h.settle(2_000);
    assert.equal(h.dataPlane.opened.length, 0);
    assert.equal(h.health.pending, true);
    assert.match(String(h.log.of('error')[0]?.fields['err']), /holds the lock/);
    h.capture.fault = undefined;
    await h.settle(4_000);
    await h.settle(1_000);
    assert.equal(h.capture.installed.size, 1);
    assert.equal(h.health.pending, false);
  });
});

describe('the controller’s canary', () => {
  const running = async () => {
    const h = harness();
    void h.controller.start();
    h.controller.apply([service(1)]);
    h.controller.synced();
    await h.settle();
    h.capture.calls.length = 0;
    return h;
  };

  test('restores rules that are gone', async () => {
    const h = await running();
    h.capture.areIntact = false;
    h.clock.advance(2_000);
    await microtasks(200);
    h.capture.areIntact = true;
    assert.equal(h.health.pending, true);
    await h.settle(100);
    assert.deepEqual(h.capture.calls, ['canary', 'canary done', 'verify', 'verify done']);
    assert.equal(h.health.pending, false);
    assert.equal(h.log.of('warn').length, 1);
  });

  test('takes no rules for gone that it cannot read', async () => {
    const h = await running();
    h.capture.fault = new Error('another program holds the lock');
    for (let look = 1; look <= 5; look++) await h.settle(2_000);
    assert.equal(h.capture.calls.includes('verify'), false, h.capture.calls.join());
    assert.equal(h.health.pending, false);
    assert.equal(h.log.of('warn').length, 0);
  });

  test('does not look while the controller pauses, nor after its end', async () => {
    const h = await running();
    await h.controller.pause();
    await h.settle(5_000);
    assert.equal(h.capture.calls.length, 0);
    h.controller.resume();
    await h.settle(5_000);
    assert.ok(h.capture.calls.includes('canary'));
    await h.controller.stop();
    h.capture.calls.length = 0;
    await h.settle(60_000);
    assert.equal(h.capture.calls.length, 0);
  });
});
