import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SCHEDULERS } from '../../../src/model/scheduler.ts';
import type { ServiceOptions } from '../../../src/model/service.ts';
import { foundText } from '../../../src/util/found.ts';
import { decodeService, okValue, problemOf, service, warningsOf } from './objects.ts';

const PREFIX = 'kube-userspace-proxy/';

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

function reasonOf([first = assert.fail()]: NonNullable<ServiceOptions['refused']>): string {
  return foundText(first);
}

function refusedOf(annotations: object) {
  return okValue(decode(annotations)).options?.refused ?? [];
}

test('a wrong annotation is refused, so that the owner of the Service hears of it, and the default holds', () => {
  const decoded = decode({
    'kube-userspace-proxy/client-address': 'Node',
    'kube-userspace-proxy/proxy-protocol': 'v1',
  });
  assert.deepEqual(okValue(decoded).options, {
    proxyProtocol: 'v1',
    refused: [{ what: 'kube-userspace-proxy/client-address', found: 'it is "Node"', advice: 'write preserve or node' }],
  });
  assert.deepEqual(warningsOf(decoded), []);
  for (const hostile of ['', 7, {}, ['v1'], 'x'.repeat(100_000)]) {
    const refused = refusedOf({ 'kube-userspace-proxy/proxy-protocol': hostile });
    assert.equal(refused.length, 1);
    assert.ok(JSON.stringify(refused).length < 400);
  }
});

test('an annotation of ours that there is not is refused, with the name that is nearest', () => {
  const reason = (name: string) => reasonOf(refusedOf({ [`kube-userspace-proxy/${name}`]: 'x' }));
  assert.equal(reason('schedulr'), 'a Service has no such annotation; did you mean kube-userspace-proxy/scheduler?');
  assert.match(reason('max-conections'), /did you mean kube-userspace-proxy\/max-connections\?$/);
  assert.equal(reason('weight'), 'a Service has no such annotation; correct or remove it');
  assert.equal(reason('__proto__'), 'a Service has no such annotation; correct or remove it');
  const many = refusedOf(Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`${PREFIX}x${n}`, 'y'])));
  assert.equal(many.length, 9);
  assert.equal(many.at(-1)?.what, '992 more annotations');
  const long = refusedOf({ [`${PREFIX}${'x'.repeat(100_000)}`]: 'y' });
  assert.ok(JSON.stringify(long).length < 400);
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
  for (const [protocols, problem] of [
    [['UDP'], 'has no effect: the Service has no TCP port'],
    [['TCP', 'UDP'], 'has no effect on UDP ports: only a TCP connection can begin with a header'],
  ] as const) {
    assert.deepEqual(okValue(decoded(protocols)).options, { proxyProtocol: 'v2' });
    const field = 'metadata.annotations[kube-userspace-proxy/proxy-protocol]';
    assert.deepEqual(warningsOf(decoded(protocols)), [{ field, found: problem }]);
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
    const { udpReplayMs, refused = [] } = okValue(decoded(wrong)).options ?? {};
    assert.equal(udpReplayMs, undefined);
    const reason = reasonOf(refused);
    assert.match(reason, /; write a duration from 10ms to 5s, such as "300ms"$/);
    assert.ok(reason.length < 300);
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
  const refused = (annotations: object) => refusedOf(annotations)[0];
  assert.deepEqual(refused({ [KUBE_ROUTER]: 'dh' }), {
    what: 'the scheduler "dh" of kube-router.io/service.scheduler',
    found: 'it chooses by the destination, and a Service port is one destination',
    advice: 'sh chooses by the client',
  });
  for (const name of ['lblc', 'lblcr', 'ovf']) assert.doesNotMatch(refused({ [OURS]: name })?.found ?? '', /no such/);
  for (const name of ['', 'RR', 'toString', '__proto__', 'x'.repeat(100_000)]) {
    const { what, ...reason } = refused({ [OURS]: name }) ?? assert.fail(name);
    assert.match(foundText(reason), /there is no such scheduler; there are rr, /);
    assert.ok(what.length < 200);
  }
  for (const hostile of [7, {}, ['rr']]) {
    assert.equal(okValue(decode({ [OURS]: hostile })).options?.scheduler, undefined);
    assert.match(refused({ [OURS]: hostile })?.found ?? '', /there is no such scheduler/);
  }
});

/** Each with what its texts are read as; `undefined`: refused. */
const VALUES: readonly (readonly [
  annotation: string,
  option: keyof ServiceOptions,
  values: Readonly<Record<string, number | undefined>>,
])[] = [
  ['slow-start', 'slowStartMs', { '30s': 30_000, '1s': 1_000, '1h': 3_600_000, '61m': undefined, '999ms': undefined }],
  [
    'wait-for-endpoints',
    'waitForEndpointsMs',
    { '30s': 30_000, '100ms': 100, '10m': 600_000, '0': 0, '0s': 0, '99ms': undefined, '601s': undefined },
  ],
  ['max-waiting', 'maxWaiting', { '1': 1, '65536': 65_536, '0': undefined, '65537': undefined, '1e3': undefined }],
  ['max-connections', 'maxConnections', { '1': 1, '1048576': 1_048_576, '0': undefined, '1048577': undefined }],
  ['queue-timeout', 'queueTimeoutMs', { '5s': 5_000, '0': 0, '10m': 600_000, '99ms': undefined, '11m': undefined }],
  ['max-connection-age', 'maxConnectionAgeMs', { '1s': 1_000, '168h': 604_800_000, '0': undefined, '169h': undefined }],
  ['drain-timeout', 'drainTimeoutMs', { '0': 0, '1s': 1_000, '500ms': undefined, '169h': undefined }],
  ['udp-timeout', 'udpTimeoutMs', { '100ms': 100, '1h': 3_600_000, '99ms': undefined, '2h': undefined }],
];

for (const [annotation, option, values] of VALUES) {
  test(`${annotation} has its bounds, and nothing else is read`, () => {
    const hostile = ['', '30', '-1s', '1.5', 30, {}, [], '9'.repeat(100_000)].map(
      (value) => [value, undefined] as const,
    );
    for (const [value, expected] of [...Object.entries(values), ...hostile]) {
      const { [option]: read, refused = [] } = okValue(decode({ [PREFIX + annotation]: value })).options ?? {};
      // A number of clients has no unit.
      if (value === '30' && /^max-(waiting|connections)$/.test(annotation)) continue;
      assert.equal(read, expected, String(value).slice(0, 100));
      assert.equal(refused.length, expected === undefined ? 1 : 0, String(value).slice(0, 100));
      assert.ok(JSON.stringify(refused).length < 400);
    }
  });
}

test('a warning says what has no effect on the ports of this Service, or without another annotation', () => {
  const problems = (protocol: string, ...names: readonly string[]) => {
    const annotations = Object.fromEntries(
      names.map((name) => [PREFIX + name, name === 'max-connections' ? '5' : '10s']),
    );
    return warningsOf(decodeService(service({ ports: [{ port: 53, protocol }] }, { annotations }))).map(
      ({ found }) => found,
    );
  };
  const noUdp = 'has no effect: the Service has no UDP port';
  const noTcp = 'has no effect: the Service has no TCP port';
  assert.deepEqual(problems('TCP', 'udp-timeout', 'drain-timeout'), [noUdp]);
  assert.deepEqual(problems('UDP', 'udp-timeout', 'drain-timeout', 'max-connection-age'), [noTcp, noTcp]);
  assert.deepEqual(problems('UDP', 'queue-timeout'), ['has no effect without kube-userspace-proxy/max-connections']);
  assert.deepEqual(problems('UDP', 'queue-timeout', 'max-connections', 'wait-for-endpoints'), []);
});

test('a warning says where a room has no clients, and what keeps an idled Service asleep', () => {
  const found = (annotations: Readonly<Record<string, string>>) =>
    warningsOf(decode(annotations)).map(({ field, found }) => `${field} ${found}`);
  const [waiting, room] = [`${PREFIX}wait-for-endpoints`, `${PREFIX}max-waiting`];
  const full = { [`${PREFIX}max-connections`]: '5' };
  const idled = { 'k8s.ovn.org/idled-at': 'now' };
  const useless = `metadata.annotations[${room}] has no effect without ${waiting} or ${PREFIX}max-connections`;
  assert.deepEqual(found({ [room]: '5' }), [`${useless}, but on nodes with --wait-for-endpoints`]);
  assert.deepEqual(found({ [room]: '5', [waiting]: '0' }), [useless]);
  assert.deepEqual(found({ [room]: '5', [waiting]: '0', ...full, [`${PREFIX}queue-timeout`]: '0' }), [useless]);
  for (const others of [{ [waiting]: '1s' }, { [waiting]: '0', ...full }, full, idled]) {
    assert.deepEqual(found({ [room]: '5', ...others }), []);
  }
  const asleep = `metadata.annotations[${waiting}] refuses the clients of this idled Service, so none of them wakes it`;
  assert.deepEqual(found({ ...idled, [waiting]: '0' }), [asleep]);
  assert.deepEqual(found({ ...idled, [waiting]: '1s' }), []);
});

test('a key that ends in /idled-at says that the Service is idled, whatever its value', () => {
  for (const key of ['idling.alpha.openshift.io/idled-at', 'k8s.ovn.org/idled-at', 'kube-userspace-proxy/idled-at']) {
    assert.deepEqual(okValue(decode({ [key]: '2026-11-27T12:00:00Z' })).options, { isIdled: true });
    assert.equal('options' in okValue(decode({ [key]: null })), false);
  }
  assert.equal('options' in okValue(decode({ 'k8s.ovn.org/unidled-at': 'x', 'idled-at': 'x' })), false);
});
