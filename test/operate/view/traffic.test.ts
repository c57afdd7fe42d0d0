import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Counter, Counters, ListenerStats } from '../../../src/model/data-plane.ts';
import type { ListenerId } from '../../../src/model/service-port.ts';
import { HISTORY_MS, SAMPLE_MS } from '../../../src/model/view.ts';
import { noCounters, TrafficSampler } from '../../../src/operate/view/traffic.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

const WEB: ListenerId = 'default/web';
const DNS: ListenerId = 'kube-system/dns:dns';

function setUp({ web }: { web?: Partial<Counters> } = {}) {
  const clock = new ManualClock();
  const listeners = new Map<ListenerId, Partial<Counters>>(web && [[WEB, web]]);
  const log = new RecordingLog();
  const state = { periods: 0, isBroken: false };
  const sampler = new TrafficSampler({
    clock,
    dataPlane: { stats: () => [...listeners].map(([id, counters]) => statsOf(id, counters)) },
    onSample: () => {
      state.periods++;
      if (state.isBroken) throw new Error('broken');
    },
    log,
  });
  sampler.start();
  /** One period passes. */
  const sample = async () => {
    clock.advance(SAMPLE_MS);
    // The next one is armed once this one is through.
    await new Promise(setImmediate);
  };
  return { clock, listeners, log, sampler, sample, state };
}

function statsOf(id: ListenerId, counters: Partial<Counters>): ListenerStats {
  const name = id as ListenerStats['name'];
  return { id, name, family: 'IPv4', protocol: 'TCP', localPort: 1, counters: { ...noCounters(), ...counters } };
}

test('rates are those of the last period, for each listener and in total', async () => {
  const { listeners, sampler, sample } = setUp();
  listeners.set(WEB, { connections: 100, receivedBytes: 1_000, sentBytes: 5_000, active: 3 });
  listeners.set(DNS, { connections: 7, active: 2 });
  await sample();
  listeners.set(WEB, { connections: 110, receivedBytes: 6_000, sentBytes: 15_000, active: 4, failedTimeout: 5 });
  await sample();
  const web = { connections: 2, receivedBytes: 1_000, sentBytes: 2_000, failures: 1 };
  assert.deepEqual(sampler.ratesOf(WEB), web);
  assert.deepEqual(sampler.ratesOf(DNS), { connections: 0, receivedBytes: 0, sentBytes: 0, failures: 0 });
  assert.deepEqual(sampler.rates, web);
  assert.equal(sampler.totals.connections, 117);
  assert.equal(sampler.totals.active, 6);
});

test('there are no rates until a period has passed, and a later listener had none in the last one', async () => {
  const { listeners, sampler, sample } = setUp({ web: { connections: 100 } });
  assert.deepEqual([sampler.rates, sampler.ratesOf(WEB)], [undefined, undefined]);
  await sample();
  assert.deepEqual([sampler.rates?.connections, sampler.ratesOf(WEB)?.connections], [0, 0]);
  listeners.set(DNS, { connections: 5 });
  assert.equal(sampler.ratesOf(DNS)?.connections, 0);
  await sample();
  assert.equal(sampler.ratesOf(DNS)?.connections, 1);
});

test('counts from before the start are not in the rates', async () => {
  const { clock, listeners, sampler, sample } = setUp({ web: { connections: 1_000_000, failedRefused: 9 } });
  await sample();
  assert.equal(sampler.ratesOf(WEB)?.connections, 0);
  assert.equal(sampler.problemOf([WEB]), undefined);
  assert.equal(sampler.totals.connections, 1_000_000);
  listeners.set(WEB, { connections: 1_000_005, failedRefused: 9 });
  await sample();
  assert.equal(sampler.ratesOf(WEB)?.connections, 1);
  assert.equal(sampler.history.at(-1)?.at, clock.wallNow());
});

test('a new listener, and one that counts from zero again, has all its counts in this period', async () => {
  const { listeners, sampler, sample } = setUp();
  await sample();
  listeners.set(WEB, { connections: 1_000 });
  await sample();
  assert.equal(sampler.ratesOf(WEB)?.connections, 200);
  listeners.set(WEB, { connections: 10 });
  await sample();
  assert.equal(sampler.ratesOf(WEB)?.connections, 2);
});

test('a listener that counts from zero again has no negative rates, also when some counters have grown', async () => {
  const { listeners, sampler, sample } = setUp();
  listeners.set(WEB, { connections: 10, receivedBytes: 5_000, sentBytes: 500_000, failedRefused: 20 });
  await sample();
  listeners.set(WEB, { connections: 15, receivedBytes: 50, sentBytes: 500, failedRefused: 5 });
  await sample();
  assert.deepEqual(sampler.ratesOf(WEB), { connections: 3, receivedBytes: 10, sentBytes: 100, failures: 1 });
});

test('a sample that fails is logged, and the next one is taken, until the sampler is stopped', async () => {
  const { clock, log, sampler, sample, state } = setUp();
  state.isBroken = true;
  await sample();
  state.isBroken = false;
  await sample();
  assert.equal(state.periods, 2);
  assert.equal(sampler.history.length, 1);
  assert.deepEqual(
    log.of('error').map(({ fields }) => fields['err']),
    ['broken'],
  );
  sampler.stop();
  assert.equal(clock.pendingTimers, 0);
});

test('a listener that is closed is forgotten', async () => {
  const { listeners, sampler, sample } = setUp();
  listeners.set(WEB, { connections: 10 });
  await sample();
  listeners.set(WEB, { connections: 20 });
  await sample();
  listeners.clear();
  await sample();
  assert.equal(sampler.ratesOf(WEB)?.connections, 0);
  assert.equal(sampler.totals.connections, 0);
});

const REASONS: readonly (readonly [counter: Counter, reason: RegExp])[] = [
  ['failedRefused', /^connections to an endpoint failed/],
  ['failedTimeout', /^connections to an endpoint failed/],
  ['failedUnreachable', /^connections to an endpoint failed/],
  ['failedOther', /^connections to an endpoint failed/],
  ['noEndpoints', /^clients were refused/],
  ['exhausted', /^clients were refused/],
  ['limited', /^UDP datagrams were dropped/],
  ['pauses', /^new clients had to wait .* descriptors/],
];

for (const [counter, reason] of REASONS) {
  test(`${counter} is a problem for a minute`, async () => {
    const { listeners, sampler, sample } = setUp();
    listeners.set(WEB, {});
    await sample();
    assert.equal(sampler.problemOf([WEB]), undefined);
    listeners.set(WEB, { [counter]: 1 });
    await sample();
    assert.match(sampler.problemOf([WEB]) ?? '', reason);
    for (let passed = 0; passed < 60_000; passed += SAMPLE_MS) await sample();
    assert.equal(sampler.problemOf([WEB]), undefined);
  });
}

test('the worst problem of the last minute is shown', async () => {
  const { listeners, sampler, sample } = setUp();
  listeners.set(WEB, { failedRefused: 3, exhausted: 1 });
  await sample();
  for (let failed = 4; failed < 15; failed++) {
    listeners.set(WEB, { failedRefused: failed, exhausted: 1 });
    await sample();
    assert.match(sampler.problemOf([WEB]) ?? '', /^clients were refused/);
  }
  await sample();
  assert.match(sampler.problemOf([WEB]) ?? '', /^connections to an endpoint failed/);
});

test('the worst problem of several listeners is shown', async () => {
  const { listeners, sampler, sample } = setUp();
  listeners.set(WEB, { failedRefused: 1 }).set(DNS, { exhausted: 1 });
  await sample();
  assert.match(sampler.problemOf([WEB]) ?? '', /^connections to an endpoint failed/);
  assert.match(sampler.problemOf([WEB, DNS]) ?? '', /^clients were refused/);
});

test('the history holds a sample for each period of the last fifteen minutes', async () => {
  const { clock, listeners, sampler, sample } = setUp();
  const samples = HISTORY_MS / SAMPLE_MS;
  for (let n = 0; n < samples + 2; n++) {
    listeners.set(WEB, { connections: n * SAMPLE_MS, active: n });
    await sample();
  }
  assert.equal(sampler.history.length, samples);
  assert.equal(sampler.history[0]?.active, 2);
  assert.deepEqual(sampler.history.at(-1), {
    ...{ connections: 1_000, receivedBytes: 0, sentBytes: 0, failures: 0, active: samples + 1 },
    at: clock.wallNow(),
  });
});
