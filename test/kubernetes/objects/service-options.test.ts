import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SCHEDULERS } from '../../../src/model/scheduler.ts';
import { foundText } from '../../../src/util/found.ts';
import { decodeService, okValue, problemOf, service, warningsOf } from './objects.ts';

function decode(annotations: unknown) {
  return decodeService(service({}, { annotations }));
}

test('annotations of a Service become its options', () => {
  assert.deepEqual(
    okValue(decode({ 'kube-userspace-proxy/client-address': 'node', 'kube-userspace-proxy/proxy-protocol': 'v2' }))
      .options,
    { clientAddress: 'node', proxyProtocol: 'v2' },
  );
  assert.deepEqual(okValue(decode({ 'kube-userspace-proxy/client-address': 'preserve' })).options, {
    clientAddress: 'preserve',
  });
});

test('a Service without annotations of ours has no options', () => {
  const none = [undefined, null, {}, { note: 'x' }, { 'kube-userspace-proxy/client-address': null }];
  for (const annotations of none) assert.equal('options' in okValue(decode(annotations)), false);
});

test('a wrong annotation is left out with a warning, and the Service is served', () => {
  const decoded = decode({
    'kube-userspace-proxy/client-address': 'Node',
    'kube-userspace-proxy/proxy-protocol': 'v1',
  });
  assert.deepEqual(okValue(decoded).options, { proxyProtocol: 'v1' });
  assert.deepEqual(warningsOf(decoded), [
    {
      field: 'metadata.annotations[kube-userspace-proxy/client-address]',
      found: 'is "Node"',
      advice: 'expected preserve or node',
    },
  ]);
  for (const hostile of ['', 7, {}, ['v1'], 'x'.repeat(100_000)]) {
    const one = decode({ 'kube-userspace-proxy/proxy-protocol': hostile });
    assert.equal('options' in okValue(one), false);
    assert.equal(warningsOf(one).length, 1);
    assert.ok(JSON.stringify(warningsOf(one)).length < 400);
  }
});

test('annotations that are no object are a fault of the whole Service', () => {
  assert.equal(problemOf(decode(['x'])), 'metadata.annotations is a list; expected an object');
});

test('a warning says that the PROXY protocol has no effect on UDP ports', () => {
  const decoded = (protocols: readonly string[]) => {
    const ports = protocols.map((protocol) => ({ name: protocol.toLowerCase(), port: 53, protocol }));
    return decodeService(service({ ports }, { annotations: { 'kube-userspace-proxy/proxy-protocol': 'v2' } }));
  };
  assert.deepEqual(warningsOf(decoded(['TCP'])), []);
  for (const protocols of [['UDP'], ['TCP', 'UDP']]) {
    assert.deepEqual(okValue(decoded(protocols)).options, { proxyProtocol: 'v2' });
    assert.deepEqual(warningsOf(decoded(protocols)), [
      {
        field: 'metadata.annotations[kube-userspace-proxy/proxy-protocol]',
        found: 'has no effect on UDP ports: only a TCP connection can begin with a header',
      },
    ]);
  }
});

test('the silence after which a UDP question is asked again is a duration, in steps of 10 ms', () => {
  const decoded = (value: unknown, protocol = 'UDP') => {
    const ports = [{ name: 'dns', port: 53, protocol }];
    return decodeService(service({ ports }, { annotations: { 'kube-userspace-proxy/udp-replay': value } }));
  };
  for (const [text, ms] of [
    ['300ms', 300],
    ['10ms', 10],
    ['5s', 5000],
    ['300.000001ms', 300],
    ['14ms', 10],
    ['4.995s', 5000],
  ] as const) {
    assert.deepEqual(okValue(decoded(text)).options, { udpReplayMs: ms });
    assert.deepEqual(warningsOf(decoded(text)), []);
  }
  for (const wrong of ['', '9ms', '5001ms', '0', '-1s', '300', 300, {}, 'x'.repeat(100_000)]) {
    assert.equal('options' in okValue(decoded(wrong)), false);
    const problem = foundText(warningsOf(decoded(wrong))[0] ?? assert.fail());
    assert.match(problem, /expected a (duration from 10ms to 5s, such as "300ms"|string)$/);
    assert.ok(problem.length < 300);
  }
  assert.deepEqual(warningsOf(decoded('300ms', 'TCP')), [
    {
      field: 'metadata.annotations[kube-userspace-proxy/udp-replay]',
      found: 'has no effect: the Service has no UDP port',
    },
  ]);
});

const OURS = 'kube-userspace-proxy/scheduler';
const KUBE_ROUTER = 'kube-router.io/service.scheduler';
const CILIUM = 'service.cilium.io/lb-algorithm';

test('a scheduler has the names of IPVS, also in the annotations of kube-router and Cilium; the first named wins', () => {
  const schedulerOf = (annotations: object) => okValue(decode(annotations)).options?.scheduler;
  for (const name of SCHEDULERS) {
    for (const annotation of [OURS, KUBE_ROUTER, CILIUM]) assert.equal(schedulerOf({ [annotation]: name }), name);
  }
  assert.equal(schedulerOf({ [CILIUM]: 'maglev' }), 'mh');
  assert.equal(schedulerOf({ [CILIUM]: 'random' }), 'random');
  assert.equal(schedulerOf({ [CILIUM]: 'random', [KUBE_ROUTER]: 'lc' }), 'lc');
  assert.equal(schedulerOf({ [CILIUM]: 'random', [KUBE_ROUTER]: 'lc', [OURS]: 'sh' }), 'sh');
  assert.equal(schedulerOf({ [KUBE_ROUTER]: 'lc', [OURS]: 'typo' }), undefined);
});

test('a scheduler that there is not is noted with the reason', () => {
  const refused = (annotations: object) => okValue(decode(annotations)).options?.refusedScheduler;
  assert.deepEqual(refused({ [KUBE_ROUTER]: 'dh' }), {
    what: 'the scheduler "dh" of kube-router.io/service.scheduler',
    found: 'it chooses by the destination, and a Service port is one destination',
    advice: 'sh chooses by the client',
  });
  for (const name of ['lblc', 'lblcr', 'ovf']) assert.doesNotMatch(refused({ [OURS]: name })?.found ?? '', /no such/);
  for (const name of ['', 'RR', 'toString', '__proto__', 'x'.repeat(100_000)]) {
    const refusal = refused({ [OURS]: name }) ?? assert.fail(name);
    const { what } = refusal;
    assert.match(foundText(refusal), /there is no such scheduler; there are rr, /);
    assert.ok(what.length < 200);
  }
  for (const hostile of [7, {}, ['rr']]) {
    const decoded = decode({ [OURS]: hostile });
    assert.equal('options' in okValue(decoded), false);
    assert.equal(warningsOf(decoded).length, 1);
  }
});

test('a slow start is a time of up to an hour', () => {
  const annotation = 'kube-userspace-proxy/slow-start';
  for (const [text, ms] of [
    ['30s', 30_000],
    ['1s', 1000],
    ['1h', 3_600_000],
  ] as const) {
    assert.equal(okValue(decode({ [annotation]: text })).options?.slowStartMs, ms);
  }
  for (const hostile of ['61m', '-1s', '999ms', '30', '', 30, {}, '9'.repeat(100_000)]) {
    const decoded = decode({ [annotation]: hostile });
    assert.equal('options' in okValue(decoded), false);
    assert.equal(warningsOf(decoded).length, 1);
  }
});
