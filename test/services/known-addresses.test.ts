import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Endpoints } from '../../src/model/endpoint.ts';
import type { Service } from '../../src/model/service.ts';
import { type AddressPolicy, KnownAddresses } from '../../src/services/known-addresses.ts';
import { address, service as anyService, cidr, endpointAddress } from '../support/model.ts';

function service(fields: Partial<Service>): Service {
  const ports = [{ name: '', protocol: 'TCP', port: 80, nodePort: 30_080 }] as const;
  return anyService({ clusterIPs: [], ports, ...fields });
}

const BALANCED = service({
  key: 'shop/b',
  clusterIPs: [address('10.96.0.10')],
  loadBalancerIPs: [address('203.0.113.1')],
  externalIPs: [address('203.0.113.2')],
});
const API: Endpoints = {
  key: 'shop/api',
  groups: [
    {
      addresses: [{ address: address('10.244.1.11'), ready: false, serving: false, terminating: true }],
      ports: [{ name: '', protocol: 'TCP', port: 8080 }],
    },
  ],
};
const ON_NODE: Endpoints = {
  key: 'shop/on-node',
  groups: [
    {
      addresses: [endpointAddress('192.0.2.1')],
      ports: [{ name: '', protocol: 'TCP', port: 9090 }],
    },
  ],
};

function known(policy: AddressPolicy = {}) {
  const addresses = new KnownAddresses({
    isListening: (one, port, protocol) => one === '192.0.2.1' && port === 22 && protocol === 'TCP',
    ...policy,
  });
  addresses.addService(BALANCED);
  addresses.addEndpoints(API);
  addresses.addEndpoints(ON_NODE);
  addresses.nodeAddresses = new Set([address('192.0.2.1'), address('2001:db8::1')]);
  addresses.proxyPorts = { TCP: new Set(), UDP: new Set([40_001]) };
  return addresses;
}

type Case = readonly [
  to: string,
  port: number,
  protocol: 'TCP' | 'UDP',
  reason?: RegExp | undefined,
  policy?: AddressPolicy,
];

const httpPorts = new Set([10_249]);

const ENDPOINTS: readonly Case[] = [
  ['10.96.0.10', 80, 'TCP', /an address of a Service, so connections would come back/],
  ['203.0.113.1', 80, 'TCP', /an address of a Service/],
  ['203.0.113.2', 80, 'TCP'],
  ['10.96.0.10', 80, 'UDP'],
  ['10.96.0.10', 81, 'TCP'],
  ['192.0.2.1', 30_080, 'TCP', /a NodePort on this node/],
  ['2001:db8::1', 30_080, 'TCP', /a NodePort on this node/],
  ['192.0.2.1', 30_080, 'TCP', undefined, { isMarking: true }],
  ['192.0.2.2', 30_080, 'TCP'],
  ['192.0.2.1', 30_080, 'UDP'],
  ['192.0.2.1', 40_001, 'UDP', /one of the proxy's own ports/],
  ['192.0.2.1', 40_001, 'UDP', /one of the proxy's own ports/, { isMarking: true }],
  ['192.0.2.1', 40_001, 'TCP'],
  ['192.0.2.2', 40_001, 'UDP'],
  ['192.0.2.1', 8080, 'TCP'],
  ['127.0.0.2', 40_001, 'UDP', /one of the proxy's own ports/, { isMarking: true }],
  ['127.0.0.2', 30_080, 'TCP', /a NodePort on this node/],
  ['127.0.0.2', 8080, 'TCP'],
  ['::1', 40_001, 'UDP', /one of the proxy's own ports/, { isMarking: true }],
  ['::1', 30_080, 'TCP', /a NodePort on this node/],
  ['::1', 8080, 'TCP'],
  ['127.0.0.1', 10_249, 'TCP', /an HTTP port of the proxy's own/, { httpPorts }],
  ['::1', 10_249, 'TCP', /an HTTP port of the proxy's own/, { httpPorts }],
  ['127.0.0.1', 10_249, 'UDP', undefined, { httpPorts }],
  ['192.0.2.1', 10_249, 'TCP', undefined, { httpPorts }],
];

const apiServers = () => [{ address: address('198.51.100.6'), port: 6443 }];
const podCidrs = [cidr('10.244.0.0/16'), cidr('192.0.2.0/24')];
const allowedExternalIPs = [cidr('198.51.100.0/24'), cidr('2001:db8::/32')];

const EXTERNAL_IPS: readonly Case[] = [
  ['198.51.100.1', 22, 'TCP'],
  ['192.0.2.1', 80, 'TCP'],
  ['192.0.2.1', 22, 'TCP', /program on this node listens/],
  ['192.0.2.1', 22, 'UDP'],
  ['198.51.100.1', 22, 'TCP', undefined, { isListening: () => true }],
  ['10.96.0.10', 9999, 'TCP', /the cluster IP of a Service/],
  ['10.244.1.11', 8080, 'TCP', /an endpoint of a Service/],
  ['10.244.1.11', 8081, 'TCP', /an endpoint of another Service has this address/],
  ['10.244.1.11', 8080, 'UDP', /an endpoint of another Service has this address/],
  ['192.0.2.1', 9090, 'TCP', /it is an endpoint of a Service/],
  ['192.0.2.1', 9091, 'TCP'],
  ['198.51.100.6', 6443, 'TCP', /it is the API server/, { apiServers }],
  ['198.51.100.6', 6443, 'UDP', undefined, { apiServers }],
  ['198.51.100.6', 443, 'TCP', undefined, { apiServers }],
  ['198.51.100.6', 6443, 'TCP', /it is the API server/, { apiServers, allowedExternalIPs }],
  ['198.51.100.1', 10_250, 'TCP', /the kubelet's on every node/],
  ['198.51.100.1', 10_250, 'UDP'],
  ['198.51.100.1', 10_250, 'TCP', undefined, { allowedExternalIPs }],
  ['2001:db8::1', 10_250, 'TCP', /the kubelet's on every node/, { allowedExternalIPs }],
  ['192.0.2.1', 30_080, 'TCP', /the NodePort of a Service/],
  ['198.51.100.1', 30_080, 'TCP'],
  ['10.244.7.7', 5432, 'TCP', /the range of pod addresses/, { podCidrs }],
  ['192.0.2.2', 80, 'TCP', /the range of pod addresses/, { podCidrs }],
  ['192.0.2.1', 80, 'TCP', undefined, { podCidrs }],
  ['198.51.100.1', 80, 'TCP', undefined, { allowedExternalIPs }],
  ['2001:db8::5', 80, 'TCP', undefined, { allowedExternalIPs }],
  ['198.51.101.1', 80, 'TCP', /not among/, { allowedExternalIPs }],
  ['192.0.2.1', 80, 'TCP', /not among/, { allowedExternalIPs: [] }],
];

for (const [kind, cases] of [
  ['an endpoint', ENDPOINTS],
  ['an external IP', EXTERNAL_IPS],
] as const) {
  describe(kind, () => {
    for (const [to, port, protocol, reason, policy] of cases) {
      const options = policy === undefined ? '' : ` with ${Object.keys(policy)}`;
      test(`${to} port ${port}/${protocol}${options} is ${reason === undefined ? 'accepted' : 'refused'}`, () => {
        const at = { address: address(to), port };
        const addresses = known(policy);
        const found =
          kind === 'an endpoint'
            ? addresses.loopReason(at, protocol)
            : addresses.externalIpRefusal(at, protocol, 'shop/web');
        if (reason === undefined) assert.equal(found, undefined);
        else assert.match(found?.found ?? '', reason);
      });
    }
  });
}

test('an endpoint of the Service itself counts unless rules leave the connections of the proxy alone', () => {
  const at = { address: address('10.244.1.11'), port: 8080 };
  assert.match(known().externalIpRefusal(at, 'TCP', 'shop/api')?.found ?? '', /an endpoint of a Service/);
  assert.equal(known({ isMarking: true }).externalIpRefusal(at, 'TCP', 'shop/api'), undefined);
  assert.equal(known().externalIpRefusal({ ...at, port: 8081 }, 'TCP', 'shop/api'), undefined);
});

test('several objects may name an address, and are forgotten one by one', () => {
  const addresses = known();
  const referrers = () => [...addresses.referrersOf(address('10.244.1.11'))];
  const thief = service({ externalIPs: [address('10.244.1.11')] });
  addresses.addService(thief);
  addresses.addEndpoints(API);
  assert.deepEqual(referrers(), [API, thief]);
  assert.deepEqual([...addresses.withExternalIP(address('10.244.1.11'))], [thief]);
  addresses.deleteEndpoints(API);
  assert.deepEqual(referrers(), [thief]);
  addresses.deleteService(thief);
  assert.deepEqual(referrers(), []);
});

test("an endpoint at this node's own address needs a Pod, and is never the kubelet, but at ports that are opened", () => {
  const opened = { nodeEndpointPorts: [{ first: 9_100, last: 9_101 }] };
  const isRefused = (policy: AddressPolicy, at: string, port: number, isVouchedFor?: true) =>
    known(policy).intrusionReason({ address: address(at), port }, isVouchedFor) !== undefined;
  for (const at of ['192.0.2.1', '2001:db8::1']) {
    for (const [port, ...expected] of [
      [8_080, true, false],
      [9_100, false, false],
      [9_101, false, false],
      [9_102, true, false],
      [10_248, true, true],
      [10_250, true, true],
      [10_255, true, true],
    ] as const) {
      assert.deepEqual([isRefused(opened, at, port), isRefused(opened, at, port, true)], expected, `${at} ${port}`);
    }
    assert.equal(isRefused({ nodeEndpointPorts: [] }, at, 9_100), true);
    assert.equal(isRefused({ nodeEndpointPorts: [{ first: 1, last: 65_535 }] }, at, 10_250), false);
    assert.equal(isRefused({}, at, 10_250), false);
  }
  assert.equal(isRefused(opened, '192.0.2.2', 10_250), false);
});
