import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { RefusedPart } from '../../../src/model/service-port.ts';
import { DataPlaneLog } from '../../../src/operate/log/data-plane-log.ts';
import { DialErrors } from '../../../src/operate/log/dial-errors.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';

const WEB: ServicePortName = 'default/web:http';
const DNS: ServicePortName = 'kube-system/dns';

function setUp() {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const errors = new DialErrors(clock);
  const refused: RefusedPart[] = [];
  const waiting: ServicePortName[] = [];
  const observer = new DataPlaneLog(log, clock, errors, {
    onRefused: (part) => refused.push(part),
    onWaiting: (name) => waiting.push(name),
  });
  return { clock, log, errors, refused, waiting, observer };
}

test('clients who begin to wait are a line of their Service, and each time is passed on', () => {
  const { log, waiting, observer } = setUp();
  for (const name of [WEB, WEB, DNS] as const) observer.clientWaits({ name });
  assert.deepEqual(waiting, [WEB, WEB, DNS]);
  assert.deepEqual(
    log.lines.map(({ level, fields }) => [level, fields]),
    [
      ['info', { svc: WEB }],
      ['info', { svc: DNS }],
    ],
  );
});

describe('a client that is refused', () => {
  test('is logged at once, with the cause and advice', () => {
    const { log, observer } = setUp();
    observer.clientRefused({ name: WEB, client: '10.0.0.1:5', reason: 'no-endpoints' });
    observer.clientRefused({ name: WEB, client: '10.0.0.1:6', reason: 'exhausted' });
    observer.clientRefused({ name: WEB, client: '10.0.0.1:7', reason: 'wait-timeout' });
    observer.clientRefused({ name: WEB, client: '10.0.0.1:8', reason: 'wait-full' });
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields]),
      [5, 6, 7, 8].map((port) => ['warn', { svc: WEB, client: `10.0.0.1:${port}` }]),
    );
    for (const [line, pattern] of [
      /no endpoint is ready; check/,
      /no endpoint answered; check/,
      /its time was up before an endpoint came or one became free; check/,
      /max-waiting$/,
    ].entries()) {
      assert.match(log.lines[line]?.message ?? '', pattern);
    }
  });

  test('makes at most one line in ten seconds, with the number of further events', () => {
    const { clock, log, observer } = setUp();
    for (let i = 0; i < 600; i++) {
      observer.clientRefused({ name: WEB, client: `10.0.0.1:${i}`, reason: 'exhausted' });
      clock.advance(100);
    }
    // One at once, then one for each of the six windows of that minute.
    assert.equal(log.lines.length, 7);
    assert.deepEqual(log.lines[1]?.fields, { svc: WEB, client: '10.0.0.1:99', suppressed: 99 });
    const told = log.lines.length + log.lines.reduce((sum, line) => sum + Number(line.fields['suppressed'] ?? 0), 0);
    assert.equal(told, 600 + 6, 'every event was logged or counted');
  });

  test('is logged at once again after ten quiet seconds', () => {
    const { clock, log, observer } = setUp();
    observer.clientRefused({ name: WEB, client: 'c', reason: 'exhausted' });
    clock.advance(10_000);
    observer.clientRefused({ name: WEB, client: 'd', reason: 'exhausted' });
    assert.deepEqual(
      log.lines.map((line) => line.fields),
      [
        { svc: WEB, client: 'c' },
        { svc: WEB, client: 'd' },
      ],
    );
  });
});

test('a thousand endpoints that are ejected and readmitted again and again make one line in ten seconds each', () => {
  const { clock, log, observer } = setUp();
  for (let i = 0; i < 1000; i++) {
    const backend = `10.1.${i >> 8}.${i & 255}:80`;
    observer.ejected({ name: WEB, backend, failures: 3, err: 'refused' });
    observer.readmitted({ name: WEB, backend });
  }
  const [ejected, readmitted, ...more] = log.lines;
  assert.deepEqual(more, []);
  assert.deepEqual(
    [ejected?.level, ejected?.fields],
    ['warn', { svc: WEB, backend: '10.1.0.0:80', failures: 3, err: 'refused' }],
  );
  assert.match(ejected?.message ?? '', /--eject-after/);
  assert.deepEqual([readmitted?.level, readmitted?.fields], ['info', { svc: WEB, backend: '10.1.0.0:80' }]);
  clock.advance(10_000);
  assert.deepEqual(
    log.lines.slice(2).map(({ level, fields }) => [level, fields['suppressed']]),
    [
      ['warn', 999],
      ['info', 999],
    ],
  );
});

test('one dead pod behind a hundred Services is one line with the endpoint, their number and some names', () => {
  const { clock, log, observer } = setUp();
  const round = () => {
    for (let i = 0; i < 100; i++) {
      const failure = { name: `shop/svc-${i}`, backend: `10.1.0.1:${80 + (i % 2)}`, err: 'refused' } as const;
      observer.dialFailed({ ...failure, reason: 'refused' });
      observer.ejected({ ...failure, failures: 3 });
    }
  };
  round();
  assert.deepEqual(
    log.lines.map(({ fields }) => fields),
    [
      { svc: 'shop/svc-0', backend: '10.1.0.1:80', err: 'refused' },
      { svc: 'shop/svc-0', backend: '10.1.0.1:80', failures: 3, err: 'refused' },
    ],
  );
  const all = { svcs: 'shop/svc-0, shop/svc-1, shop/svc-2, …', services: 100, backend: '10.1.0.1:81', err: 'refused' };
  clock.advance(10_000);
  assert.deepEqual(log.lines[2]?.fields, { ...all, backends: 2, suppressed: 99 });
  round();
  clock.advance(10_000);
  assert.equal(log.lines.length, 6, 'two more');
  assert.deepEqual(log.lines[4]?.fields, { ...all, backends: 2, suppressed: 100 });
  // Its end, the same way.
  for (let i = 0; i < 100; i++) observer.readmitted({ name: `shop/svc-${i}`, backend: '10.1.0.1:80' });
  clock.advance(10_000);
  assert.deepEqual(
    log.lines.slice(6).map(({ level, fields }) => [level, fields['suppressed']]),
    [
      ['info', undefined],
      ['info', 99],
    ],
  );
  clock.advance(10_000);
  assert.equal(clock.pendingTimers, 0);
});

test('pods that die together are told each, and no line hides an endpoint of another Service', () => {
  const { log, observer } = setUp();
  const fail = (service: string, address: string) =>
    observer.dialFailed({ name: `shop/${service}`, backend: `${address}:80`, reason: 'timeout', err: 'timeout' });
  fail('a', '10.1.0.1');
  fail('b', '10.1.0.1');
  fail('b', '10.1.0.2');
  fail('c', '[fd00::1]');
  fail('d', '[fd00::1]');
  assert.deepEqual(
    log.lines.map(({ fields }) => `${fields['svc']} ${fields['backend']}`),
    ['shop/a 10.1.0.1:80', 'shop/b 10.1.0.2:80', 'shop/c [fd00::1]:80'],
  );
  observer.close();
});

test('each Service port and each reason has its own lines', () => {
  const { log, observer } = setUp();
  const backendOf = (name: string) => (name === WEB ? '10.1.0.1:80' : '10.1.0.2:80');
  for (const name of [WEB, DNS]) {
    for (const reason of ['refused', 'timeout', 'unreachable', 'other'] as const) {
      observer.dialFailed({ name, backend: backendOf(name), reason, err: reason });
      observer.dialFailed({ name, backend: backendOf(name), reason, err: reason });
    }
    observer.limited({ name, client: 'c', limit: 'flows-per-service' });
    observer.limited({ name, client: 'c', limit: 'flows-per-namespace' });
    observer.limited({ name, client: 'c', limit: 'flows-total' });
    observer.listenerFailed({ name, err: 'EMFILE' });
  }
  assert.equal(log.lines.length, 2 * 8);
  assert.equal(new Set(log.lines.map((line) => line.message + line.fields['svc'])).size, 2 * 8);
  const texts = log.lines.map((line) => line.message).join('\n');
  assert.match(texts, /--udp-max-flows-per-service\n/);
  assert.match(texts, /--udp-max-flows\n/);
});

test('a bound that ports of a Service reach is one line in ten seconds, and told to its owner once', () => {
  const { clock, log, refused, observer } = setUp();
  for (let i = 0; i < 300; i++) {
    for (const port of ['a', 'b']) {
      observer.limited({ name: `shop/web:${port}`, client: 'c', limit: 'flows-per-namespace' });
    }
    clock.advance(100);
  }
  assert.equal(log.lines.length, 4);
  assert.deepEqual(log.lines[1]?.fields, { svcs: 'shop/web:a, shop/web:b', services: 2, client: 'c', suppressed: 199 });
  const found = 'its namespace holds its share of all; see --udp-max-flows';
  assert.deepEqual(refused, [{ name: 'shop/web:a', what: 'some new UDP flows', found }]);
});

test('a bound that a thousand Services of a namespace reach is one line in ten seconds, and told to each owner once', () => {
  const { clock, log, refused, observer } = setUp();
  const names = Array.from({ length: 1_000 }, (_, i): ServicePortName => `shop/s${i}:dns`);
  const limit = (name: ServicePortName) => observer.limited({ name, client: 'c', limit: 'flows-per-service' });
  for (let second = 0; second < 30; second++) {
    for (const name of names) limit(name);
    if (second === 5) limit(DNS);
    clock.advance(1_000);
  }
  const ofShop = log.lines.filter(({ fields }) => fields['svc'] !== DNS);
  assert.equal(log.lines.length - ofShop.length, 1, 'another namespace has lines of its own');
  assert.deepEqual(
    ofShop.map(({ fields }) => [fields['svc'] ?? fields['svcs'], fields['suppressed']]),
    [
      ['shop/s0:dns', undefined],
      ['shop/s0:dns, shop/s1:dns, shop/s2:dns, …', 9_999],
      ['shop/s0:dns, shop/s1:dns, shop/s2:dns, …', 10_000],
      ['shop/s0:dns, shop/s1:dns, shop/s2:dns, …', 10_000],
    ],
  );
  assert.equal(ofShop[1]?.fields['services'], 1_000);
  assert.deepEqual(refused.map(({ name }) => name).toSorted(), [...names, DNS].toSorted());
  clock.advance(20_000);
  limit('shop/s7:dns');
  assert.deepEqual(log.lines.at(-1)?.fields, { svc: 'shop/s7:dns', client: 'c' }, 'told anew');
  assert.equal(refused.at(-1)?.name, 'shop/s7:dns');
  observer.close();
});

test('a quiet Service port is forgotten', () => {
  const { clock, observer } = setUp();
  for (let i = 0; i < 1_000; i++) {
    observer.clientRefused({ name: `default/svc-${i}`, client: 'c', reason: 'exhausted' });
    observer.clientRefused({ name: `default/svc-${i}`, client: 'c', reason: 'exhausted' });
  }
  assert.equal(clock.pendingTimers, 1_000);
  clock.advance(10_000);
  assert.equal(clock.pendingTimers, 1_000, 'the suppressed ones were logged just now');
  clock.advance(10_000);
  assert.equal(clock.pendingTimers, 0);
});

test('closing logs what was suppressed and leaves no timer', () => {
  const { clock, log, observer } = setUp();
  observer.limited({ name: DNS, client: 'a', limit: 'flows-total' });
  observer.limited({ name: DNS, client: 'b', limit: 'flows-total' });
  observer.listenerFailed({ name: WEB, err: 'EMFILE' });
  observer.close();
  assert.deepEqual(
    log.lines.map((line) => line.fields),
    [
      { svc: DNS, client: 'a' },
      { svc: WEB, err: 'EMFILE' },
      { svc: DNS, client: 'b', suppressed: 1 },
    ],
  );
  assert.equal(clock.pendingTimers, 0);
});

test('an error says an address once: beside the endpoint it needs none', () => {
  const { log, observer, errors } = setUp();
  const failure = { name: WEB, backend: '[fd00::1]:80', err: 'connect ECONNREFUSED fd00::1:80' };
  observer.dialFailed({ ...failure, reason: 'refused' });
  observer.ejected({ ...failure, failures: 3 });
  assert.deepEqual(
    log.lines.map(({ fields }) => fields['err']),
    ['connect ECONNREFUSED', 'connect ECONNREFUSED'],
  );
  assert.equal(errors.last(WEB, failure.backend)?.err, 'connect ECONNREFUSED');
  observer.close();
});

test('a Service whose clients are forgotten is told of once while that lasts, in the log and to its owner', () => {
  const { clock, log, refused, observer } = setUp();
  for (let i = 0; i < 100; i++) {
    observer.clientsForgotten({ name: WEB });
    clock.advance(500);
  }
  assert.equal(log.lines.length, 1 + 5);
  assert.deepEqual(refused, [{ name: WEB, what: 'the affinity of some clients', found: 'too many are remembered' }]);
  clock.advance(60_000);
  observer.clientsForgotten({ name: WEB });
  assert.equal(refused.length, 2);
});

test('so is one whose namespace holds its share of the descriptors', () => {
  const { log, refused, observer } = setUp();
  for (let i = 0; i < 100; i++) observer.limited({ name: WEB, limit: 'descriptors' });
  assert.equal(log.lines.length, 1);
  const found = "its namespace holds its share of the node's descriptors";
  assert.deepEqual(refused, [{ name: WEB, what: 'some new clients', found }]);
});
