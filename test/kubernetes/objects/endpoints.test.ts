import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Decoded, FileRules } from '../../../src/kubernetes/objects/decoded.ts';
import { decodeEndpointSlice, decodeEndpoints, endpoints, okValue, problemOf, slice, warningsOf } from './objects.ts';

const ports = [{ name: 'http', port: 8080 }];

test('every subset becomes a group with its ready and its other addresses', () => {
  const object = endpoints([
    {
      addresses: [{ ip: '10.0.0.1', nodeName: 'node-1.example', targetRef: { kind: 'Pod' } }],
      notReadyAddresses: [{ ip: 'fd00::0:2' }],
      ports: [...ports, { name: 'dns', port: 53, protocol: 'UDP' }],
    },
    { addresses: [{ ip: '10.0.0.3' }], ports: [{ port: 1 }] },
  ]);
  assert.deepEqual(okValue(decodeEndpoints(object)), {
    key: 'shop/web',
    groups: [
      {
        addresses: [
          {
            address: '10.0.0.1',
            ready: true,
            serving: true,
            terminating: false,
            isVouchedFor: true,
            nodeName: 'node-1.example',
          },
          { address: 'fd00::2', ready: false, serving: false, terminating: false },
        ],
        ports: [
          { name: 'http', protocol: 'TCP', port: 8080 },
          { name: 'dns', protocol: 'UDP', port: 53 },
        ],
      },
      {
        addresses: [{ address: '10.0.0.3', ready: true, serving: true, terminating: false }],
        ports: [{ name: '', protocol: 'TCP', port: 1 }],
      },
    ],
  });
});

test('without subsets there are no groups', () => {
  for (const subsets of [undefined, null, []]) {
    assert.deepEqual(okValue(decodeEndpoints(endpoints(subsets))), { key: 'shop/web', groups: [] });
  }
});

test('a bad address is left out with a warning and the others are served', () => {
  const bad = [
    { ip: '127.0.0.1' },
    { ip: '::ffff:127.0.0.1' },
    { ip: '169.254.169.254' },
    { ip: '0.0.0.0' },
    { ip: '10.0.0.1:80' },
    {},
    null,
  ];
  const decoded = decodeEndpoints(endpoints([{ addresses: [...bad, { ip: '10.0.0.9' }], ports }]));
  assert.deepEqual(
    okValue(decoded).groups[0]?.addresses.map(({ address }) => address),
    ['10.0.0.9'],
  );
  assert.deepEqual(
    warningsOf(decoded).map(({ field }) => field),
    bad.map((_, index) => `subsets[0].addresses[${index}].ip`),
  );
});

test('a bad port or name makes the object invalid', () => {
  // The name of a Service, hence a label.
  assert.match(problemOf(decodeEndpoints(endpoints([], { name: 'a.b' }))), /^metadata\.name is "a\.b"/);
  const withPort = (port: unknown) => problemOf(decodeEndpoints(endpoints([{ ports: [port] }])));
  assert.match(withPort({ port: 70_000 }), /^subsets\[0\]\.ports\[0\]\.port is 70000/);
  assert.match(withPort({ port: 80, name: 'a/b' }), /^subsets\[0\]\.ports\[0\]\.name is "a\/b"/);
  assert.match(withPort({ port: 80, protocol: 'ICMP' }), /^subsets\[0\]\.ports\[0\]\.protocol is "ICMP"/);
});

test('what the labels give to another proxy is skipped', () => {
  for (const label of ['service.kubernetes.io/headless', 'service.kubernetes.io/service-proxy-name']) {
    assert.deepEqual(decodeEndpoints(endpoints('nonsense', { labels: { [label]: '' } })), {
      status: 'skipped',
      reason: `it has the label ${label}`,
    });
  }
});

test('a weight is of every group', () => {
  const object = endpoints(
    [
      { addresses: [{ ip: '10.0.0.1' }], ports },
      { addresses: [{ ip: '10.0.0.2' }], ports },
    ],
    {
      annotations: { 'kube-userspace-proxy/weight': '4' },
    },
  );
  assert.deepEqual(
    okValue(decodeEndpoints(object)).groups.map(({ weight }) => weight),
    [4, 4],
  );
});

test('a loopback address is an endpoint in a file alone, where the operator allows it', () => {
  for (const [family, ip] of [
    ['IPv4', '127.0.0.2'],
    ['IPv6', '::1'],
  ] as const) {
    const inEndpoints = endpoints([{ addresses: [{ ip }], ports: [{ port: 8080 }] }]);
    const inSlice = slice({ addressType: family, endpoints: [{ addresses: [ip] }] });
    const rules = (loopbackEndpoints: boolean) => ({ clusterIpFamilies: [], loopbackEndpoints });
    const decoders: readonly ((file?: FileRules) => Decoded<object>)[] = [
      (file) => decodeEndpoints(inEndpoints, file),
      (file) => decodeEndpointSlice(inSlice, file),
    ];
    for (const decode of decoders) {
      assert.match(JSON.stringify(okValue(decode(rules(true)))), new RegExp(`"address":"${ip}"`));
      assert.match(JSON.stringify(warningsOf(decode(rules(false)))), /only with --allow-loopback-endpoints/);
      assert.match(JSON.stringify(warningsOf(decode())), /a loopback address is never proxied/);
    }
  }
});

test('objects vouch for the endpoints of Pods, and the API server for its own', () => {
  const vouched = (targetRef: unknown, key = 'shop/web') => {
    const [namespace, name] = key.split('/');
    const metadata = { namespace, name, labels: { 'kubernetes.io/service-name': 'web' } };
    const ofSlice = slice({ metadata, endpoints: [{ addresses: ['10.0.0.1'], targetRef }] });
    const old = { ...endpoints([{ addresses: [{ ip: '10.0.0.1', targetRef }], ports }]), metadata };
    return [okValue(decodeEndpointSlice(ofSlice)).group, ...okValue(decodeEndpoints(old)).groups].map(
      ({ addresses }) => addresses[0]?.isVouchedFor,
    );
  };
  assert.deepEqual(vouched({ kind: 'Pod', namespace: 'shop', name: 'web-1' }), [true, true]);
  for (const other of [undefined, null, {}, { kind: 'Node', name: 'n1' }, { kind: ['Pod'] }, 'Pod', ['Pod']]) {
    assert.deepEqual(vouched(other), [undefined, undefined]);
  }
  assert.deepEqual(vouched(undefined, 'default/kubernetes'), [true, true]);
  assert.deepEqual(vouched(undefined, 'shop/kubernetes'), [undefined, undefined]);
  assert.deepEqual(vouched(undefined, 'default/kubernetes-2'), [undefined, undefined]);
});
