import assert from 'node:assert/strict';
import { test } from 'node:test';
import { foundText } from '../../../src/util/found.ts';
import { decodeEndpointSlice, okValue, problemOf, slice, warningsOf } from './objects.ts';

test('a slice becomes its model, under its own key and with that of its Service', () => {
  const object = slice({ endpoints: [{ addresses: ['10.244.0.1'], nodeName: 'n1', zone: 'eu-1a', hostname: 'x' }] });
  assert.deepEqual(okValue(decodeEndpointSlice(object)), {
    key: 'shop/web-x1',
    service: 'shop/web',
    group: {
      addresses: [
        { address: '10.244.0.1', ready: true, serving: true, terminating: false, nodeName: 'n1', zone: 'eu-1a' },
      ],
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    },
  });
});

test('a slice without endpoints or ports is empty; its name may have dots', () => {
  const metadata = { name: 'web.v1', labels: { 'kubernetes.io/service-name': 'web' } };
  const { key, service, group } = okValue(decodeEndpointSlice(slice({ endpoints: null, ports: undefined, metadata })));
  assert.deepEqual([key, service, group], ['default/web.v1', 'default/web', { addresses: [], ports: [] }]);
});

test('unknown conditions: ready is true, serving follows ready, terminating is false', () => {
  const conditionsOf = (conditions: unknown) => {
    const object = slice({ endpoints: [{ addresses: ['10.244.0.1'], conditions }] });
    const [first] = okValue(decodeEndpointSlice(object)).group.addresses;
    return [first?.ready, first?.serving, first?.terminating];
  };
  assert.deepEqual(conditionsOf(undefined), [true, true, false]);
  assert.deepEqual(conditionsOf({ ready: null, serving: null, terminating: null }), [true, true, false]);
  assert.deepEqual(conditionsOf({ ready: false }), [false, false, false]);
  assert.deepEqual(conditionsOf({ ready: false, serving: true, terminating: true }), [false, true, true]);
  assert.deepEqual(conditionsOf({ ready: true, serving: false }), [true, false, false]);
  // Of a Service that publishes addresses that are not ready.
  assert.deepEqual(conditionsOf({ ready: true, serving: false, terminating: true }), [true, false, true]);
});

test('hints are kept, and a bad one is left out without its endpoint', () => {
  const hintsOf = (hints: unknown) => {
    const decoded = decodeEndpointSlice(slice({ endpoints: [{ addresses: ['10.244.0.1'], hints }] }));
    const [{ nodeHints, zoneHints } = assert.fail()] = okValue(decoded).group.addresses;
    return [nodeHints, zoneHints, warningsOf(decoded).map(({ field }) => field)];
  };
  const both = { forNodes: [{ name: 'n1.example' }], forZones: [{ name: 'eu-1a' }, { name: 'EU_1.b' }] };
  assert.deepEqual(hintsOf(both), [['n1.example'], ['eu-1a', 'EU_1.b'], []]);
  for (const none of [undefined, null, {}, { forNodes: null, forZones: [] }]) {
    assert.deepEqual(hintsOf(none), [undefined, undefined, []]);
  }
  assert.deepEqual(hintsOf({ forNodes: [{ name: 'n1' }, { name: 'a\nb' }], forZones: [{}] }), [
    ['n1'],
    undefined,
    ['endpoints[0].hints.forNodes[1].name', 'endpoints[0].hints.forZones[0].name'],
  ]);
});

test('no spelling of a special address is an endpoint', () => {
  const v4 = ['127.0.0.1', '0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255', '0177.0.0.1', '127.1'];
  const v6 = ['::1', '0:0:0:0:0:0:0:1', '::', 'fe80::1', 'FF02::1', '::ffff:10.0.0.1', '::FFFF:7f00:1', '::127.0.0.1'];
  for (const [addressType, addresses] of Object.entries({ IPv4: v4, IPv6: v6 })) {
    const endpoints = addresses.map((address) => ({ addresses: [address] }));
    const decoded = decodeEndpointSlice(slice({ addressType, endpoints }));
    assert.deepEqual(okValue(decoded).group.addresses, []);
    assert.equal(warningsOf(decoded).length, endpoints.length);
  }
});

test('a bad endpoint is left out with a warning and the others are served', () => {
  const bad: [unknown, string][] = [
    [{ addresses: ['127.0.0.1'] }, 'addresses[0]'],
    [{ addresses: ['fd00::1'] }, 'addresses[0]'],
    [{ addresses: [] }, 'addresses'],
    [{}, 'addresses'],
  ];
  // Of the addresses of one endpoint only the first counts, as upstream.
  const good = { addresses: ['10.244.0.9', '10.244.0.2', 'nonsense'] };
  const objects = [...bad.map(([endpoint]) => endpoint), good];
  const decoded = decodeEndpointSlice(slice({ endpoints: objects }));
  assert.deepEqual(
    okValue(decoded).group.addresses.map(({ address }) => address),
    ['10.244.0.9'],
  );
  assert.deepEqual(
    warningsOf(decoded).map(({ field }) => field),
    bad.map(([, field], index) => `endpoints[${index}].${field}`),
  );
});

test('an optional field that cannot be understood costs itself, and neither its endpoint nor the slice', () => {
  const odd: [object, string[]][] = [
    [{ conditions: { ready: 'yes', serving: 1 } }, ['conditions.ready', 'conditions.serving']],
    [{ conditions: 'ready' }, ['conditions', 'conditions', 'conditions']],
    [{ nodeName: 5 }, ['nodeName']],
    [{ nodeName: 'a\nb' }, ['nodeName']],
    [{ hints: [] }, ['hints', 'hints']],
    [{ hints: { forZones: 'a' } }, ['hints.forZones']],
    [{ targetRef: 5, hostname: {}, deprecatedTopology: [] }, []],
  ];
  for (const [fields, paths] of odd) {
    const endpoints = [{ addresses: ['10.244.0.2'], ...fields }];
    const decoded = decodeEndpointSlice(slice({ endpoints }));
    assert.deepEqual(okValue(decoded).group.addresses, [
      { address: '10.244.0.2', ready: true, serving: true, terminating: false },
    ]);
    assert.deepEqual(
      warningsOf(decoded).map(({ field }) => field),
      paths.map((path) => `endpoints[0].${path}`),
    );
  }
  const labels = { 'kubernetes.io/service-name': 'web' };
  okValue(decodeEndpointSlice(slice({ metadata: { name: 'web-1', labels, annotations: 'none' } })));
});

test('an endpoint keeps its place without a zone that no node can be in, and nothing is said of it', () => {
  for (const zone of ['', 'dc 1/rack:2', 'z'.repeat(64), 'a\nb', 5]) {
    const decoded = decodeEndpointSlice(slice({ endpoints: [{ addresses: ['10.244.0.2'], zone }] }));
    assert.deepEqual(okValue(decoded).group.addresses, [
      { address: '10.244.0.2', ready: true, serving: true, terminating: false },
    ]);
    assert.deepEqual(warningsOf(decoded), []);
  }
});

test('a port without a number means all ports and is left out with a warning', () => {
  const decoded = decodeEndpointSlice(
    slice({
      ports: [
        { name: 'any', port: null },
        { name: null, port: 80 },
      ],
    }),
  );
  assert.deepEqual(okValue(decoded).group.ports, [{ name: '', protocol: 'TCP', port: 80 }]);
  assert.deepEqual(warningsOf(decoded), [
    { field: 'ports[0].port', found: 'is missing', advice: 'a proxy needs a number' },
  ]);
});

test('a bad port, type, name or label makes the slice invalid', () => {
  assert.match(problemOf(decodeEndpointSlice(slice({ ports: [{ port: 0 }] }))), /^ports\[0\]\.port is 0/);
  assert.match(problemOf(decodeEndpointSlice(slice({ addressType: 'IP' }))), /^addressType is "IP"; expected IPv4, /);
  assert.match(problemOf(decodeEndpointSlice(slice({ addressType: undefined }))), /^addressType is missing/);
  assert.match(problemOf(decodeEndpointSlice(slice({ metadata: { name: 'a..b' } }))), /^metadata\.name is "a\.\.b"/);
  assert.match(
    problemOf(decodeEndpointSlice(slice({}, { 'kubernetes.io/service-name': 'a/b' }))),
    /^metadata\.labels\[kubernetes\.io\/service-name\] is "a\/b"/,
  );
});

test('slices of host names, of no Service and of other proxies are skipped', () => {
  const name = { 'kubernetes.io/service-name': 'web' };
  assert.equal(decodeEndpointSlice(slice({ addressType: 'FQDN', endpoints: 5 })).status, 'skipped');
  assert.equal(decodeEndpointSlice(slice({}, {})).status, 'skipped');
  assert.equal(decodeEndpointSlice(slice({}, { 'kubernetes.io/service-name': '' })).status, 'skipped');
  assert.equal(decodeEndpointSlice(slice({}, { ...name, 'service.kubernetes.io/headless': '' })).status, 'skipped');
  const other = { ...name, 'service.kubernetes.io/service-proxy-name': 'x' };
  assert.equal(decodeEndpointSlice(slice({}, other)).status, 'skipped');
});

test('when its change was triggered is read from Go’s timestamp, and anything else is nothing', () => {
  const labels = { 'kubernetes.io/service-name': 'web' };
  const triggeredAt = (text: unknown) => {
    const annotations = { 'endpoints.kubernetes.io/last-change-trigger-time': text };
    return okValue(decodeEndpointSlice(slice({ metadata: { name: 'web-1', labels, annotations } }))).triggeredAt;
  };
  assert.equal(triggeredAt('2026-11-20T09:30:00Z'), 1_795_167_000_000);
  assert.equal(triggeredAt('2026-11-20T10:30:00.25+01:00'), 1_795_167_000_250);
  for (const text of ['yesterday', '2026-13-40T00:00:00Z', 5, '', undefined])
    assert.equal(triggeredAt(text), undefined);
});

test('an annotation of ours that endpoints do not have is a warning, with the name that is nearest', () => {
  const annotations = { 'kube-userspace-proxy/weigth': '7', 'kube-userspace-proxy/scheduler': 'lc', other: 'x' };
  const labels = { 'kubernetes.io/service-name': 'web' };
  const problems = warningsOf(decodeEndpointSlice(slice({ metadata: { name: 'web-1', labels, annotations } })));
  assert.deepEqual(problems.map(foundText), [
    'has "kube-userspace-proxy/weigth", which endpoints do not have; did you mean kube-userspace-proxy/weight?',
    'has "kube-userspace-proxy/scheduler", which endpoints do not have; correct or remove it',
  ]);
});

test('a weight is of all endpoints of a slice; the annotation of Cilium counts where ours is absent', () => {
  const decode = (annotations: object) =>
    decodeEndpointSlice(
      slice({ metadata: { name: 'web-1', labels: { 'kubernetes.io/service-name': 'web' }, annotations } }),
    );
  const weightOf = (annotations: object) => okValue(decode(annotations)).group.weight;
  const [OURS, CILIUM] = ['kube-userspace-proxy/weight', 'service.cilium.io/weight'];
  assert.equal(weightOf({ [OURS]: '65535' }), 65_535);
  assert.equal(weightOf({ [CILIUM]: '0' }), 0);
  assert.equal(weightOf({ [CILIUM]: '7', [OURS]: '3' }), 3);
  assert.equal(weightOf({}), undefined);
  for (const hostile of ['65536', '-1', '1.5', '', ' 1', 5, {}, '1'.repeat(100_000)]) {
    assert.equal(weightOf({ [OURS]: hostile, [CILIUM]: '7' }), undefined);
    assert.equal(warningsOf(decode({ [OURS]: hostile })).length, 1);
  }
});
