import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COUNTERS, type Counters, type ListenerStats } from '../../src/model/data-plane.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import { listenerId, type ServicePort } from '../../src/model/service-port.ts';
import type { PodsNeeded } from '../../src/model/waiting.ts';
import { WakeCalls } from '../../src/sync/wake-calls.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { servicePort } from '../support/model.ts';
import { settle } from '../support/until.ts';

const WEB: ServicePortName = 'shop/web';
const IDLED = { endpoints: [], options: { isIdled: true } } as const;
const ASLEEP = { endpoints: [], waitMs: 30_000 } as const;

/** Service ports at which as many clients wait as a test says. */
function harness(services: Readonly<Partial<Record<ServicePortName, Partial<ServicePort>>>>) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const ports = new Map(
    Object.entries(services).map(([name, fields]) => {
      return [name as ServicePortName, servicePort({ ...fields, name: name as ServicePortName })];
    }),
  );
  const waiting = new Map<ServicePortName, number>();
  const calls: PodsNeeded[] = [];
  const state = { answer: async () => {} };
  const statsOf = (name: ServicePortName): ListenerStats => {
    const counters = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
    counters.waiting = waiting.get(name) ?? 0;
    return { id: listenerId(name, 'IPv4', 'own'), name, family: 'IPv4', protocol: 'TCP', localPort: 1, counters };
  };
  const wakeCalls = new WakeCalls({
    clock,
    log,
    dataPlane: { stats: () => [...ports.keys()].map(statsOf), statsOf: (id) => statsOf(id as ServicePortName) },
    carried: (name) => {
      const port = ports.get(name);
      if (port === undefined) return [];
      return [{ servicePort: port, listeners: [{ id: listenerId(name, 'IPv4', 'own'), set: 'own', localPort: 1 }] }];
    },
    uidOf: (name) => `uid of ${name}`,
    call: (needed) => {
      calls.push(needed);
      return state.answer();
    },
  });
  wakeCalls.start();
  return {
    ...{ clock, log, wakeCalls, calls, state },
    set: (name: ServicePortName, fields: Partial<ServicePort>) => ports.set(name, servicePort({ ...fields, name })),
    /** So many clients wait from now on. */
    wait: async (name: ServicePortName, count: number) => {
      const before = waiting.get(name) ?? 0;
      waiting.set(name, count);
      if (before === 0 && count > 0) wakeCalls.clientWaits(name);
      await settle();
    },
    /** Second by second. How many calls there were meanwhile. */
    pass: async (seconds: number) => {
      const before = calls.length;
      for (let second = 0; second < seconds; second++) {
        clock.advance(1_000);
        await settle();
      }
      return calls.length - before;
    },
  };
}

test('the first client of an idled Service calls at once, and again every five seconds while somebody waits', async () => {
  const h = harness({ [WEB]: IDLED });
  await h.wait(WEB, 1);
  assert.deepEqual(h.calls, [{ name: WEB, port: 80, uid: `uid of ${WEB}` }]);
  assert.equal(await h.pass(4), 0);
  assert.equal(await h.pass(11), 3);
  await h.wait(WEB, 0);
  assert.equal(await h.pass(30), 0);
  assert.equal(h.wakeCalls.counts.get(WEB), 4);
});

test('that of any other Service calls at once, and again every minute', async () => {
  const h = harness({ [WEB]: ASLEEP });
  await h.wait(WEB, 1);
  assert.equal(h.calls.length, 1);
  assert.equal(await h.pass(59), 0);
  assert.equal(await h.pass(62), 2);
});

test('clients that come and go in one sleep are one call; the next sleep has its own', async () => {
  const h = harness({ [WEB]: ASLEEP });
  for (let client = 0; client < 100; client++) {
    await h.wait(WEB, 1);
    await h.wait(WEB, 0);
  }
  assert.equal(await h.pass(10), 0);
  assert.equal(h.calls.length, 1);
  await h.wait(WEB, 1);
  h.set(WEB, {});
  await h.wait(WEB, 0);
  await h.pass(1);
  h.set(WEB, ASLEEP);
  await h.wait(WEB, 1);
  assert.equal(h.calls.length, 2);
});

test('nobody is called while there are endpoints, or pods on other nodes; somebody is once the last has gone', async () => {
  const h = harness({ [WEB]: {}, 'shop/elsewhere': { ...ASLEEP, onlyElsewhere: true } });
  await h.wait(WEB, 5);
  await h.wait('shop/elsewhere', 5);
  assert.equal(await h.pass(70), 0);
  h.set(WEB, ASLEEP);
  assert.equal(await h.pass(1), 1);
});

test('clients that a predecessor had are found at the start; a Service that has gone is called for no more', async () => {
  const h = harness({ [WEB]: IDLED });
  h.wakeCalls.stop();
  await h.wait(WEB, 2);
  assert.equal(await h.pass(10), 0);
  h.wakeCalls.start();
  assert.equal(h.calls.length, 1);
  h.set(WEB, {});
  assert.equal(await h.pass(10), 0);
});

test('a flood at all Services of a namespace is a call a second, and no other namespace waits', async () => {
  const names = Array.from({ length: 100 }, (_, n): ServicePortName => `flood/s${n}`);
  const h = harness({ ...Object.fromEntries(names.map((name) => [name, ASLEEP])), [WEB]: IDLED });
  for (const name of names) await h.wait(name, 1);
  assert.equal(h.calls.length, 10);
  await h.wait(WEB, 1);
  assert.equal(h.calls.at(-1)?.name, WEB);
  const inTheFirstSeconds = await h.pass(20);
  assert.equal(inTheFirstSeconds, 20 + 4, 'one a second of the flood, and four of the other');
  assert.equal(new Set(h.calls.map(({ name }) => name)).size, 31, 'each of them in turn');
});

test('a call that nobody hears is logged once while that lasts, tried again, and never twice at a time', async () => {
  const h = harness({ [WEB]: IDLED });
  h.state.answer = () => Promise.reject(new Error('HTTP 403'));
  await h.wait(WEB, 1);
  assert.equal(await h.pass(10), 2);
  assert.deepEqual(
    h.log.lines.map(({ level, message }) => [level, message]),
    [['error', 'Cannot call for pods of Services whose clients wait; retrying while they wait']],
  );
  let hear = () => {};
  h.state.answer = () =>
    new Promise<void>((resolve) => {
      hear = resolve;
    });
  assert.equal(await h.pass(30), 1);
  hear();
  await settle();
  assert.equal(h.log.lines.length, 2);
  assert.equal(await h.pass(1), 1);
});

test('a call that nobody hears is tried again after five seconds, also that of a Service that is not idled', async () => {
  const h = harness({ [WEB]: ASLEEP });
  h.state.answer = () => Promise.reject(new Error('connect ECONNREFUSED'));
  await h.wait(WEB, 1);
  assert.equal(await h.pass(4), 0);
  assert.equal(await h.pass(11), 3);
  h.state.answer = async () => {};
  assert.equal(await h.pass(5), 1);
  assert.equal(await h.pass(59), 0, 'it was heard');
});

test('calls that nobody hears take no more than the ration of their namespace', async () => {
  const names = Array.from({ length: 40 }, (_, n): ServicePortName => `flood/s${n}`);
  const h = harness(Object.fromEntries(names.map((name) => [name, ASLEEP])));
  h.state.answer = () => Promise.reject(new Error('HTTP 403'));
  for (const name of names) await h.wait(name, 1);
  assert.equal(await h.pass(30), 30);
});

test('whoever makes Service ports does not fill the metrics', async () => {
  const names = Array.from({ length: 1_010 }, (_, n): ServicePortName => `ns${n}/web`);
  const h = harness(Object.fromEntries(names.map((name) => [name, ASLEEP])));
  for (const name of names) await h.wait(name, 1);
  await h.pass(1);
  assert.equal(h.wakeCalls.counts.size, 1_001);
  assert.equal(h.wakeCalls.counts.get(undefined), 10);
});
