import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endpointName } from '../../src/model/endpoint.ts';
import { type ExternalIpFacts, externalIpRefusal } from '../../src/services/external-ip-refusal.ts';
import { address, cidr } from '../rules/fixtures.ts';

const TCP = { protocol: 'TCP', service: 'shop/web' } as const;

const facts: ExternalIpFacts = {
  isClusterIP: (one) => one === '10.96.0.10',
  isEndpoint: (one, protocol) => endpointName(one) === '10.244.1.11:8080' && protocol === 'TCP',
  isNodePort: (port, protocol) => port === 30_080 && protocol === 'TCP',
  podCidrs: [],
  isListening: (one, port, protocol) => one === '192.0.2.1' && port === 22 && protocol === 'TCP',
  nodeAddresses: new Set([address('192.0.2.1')]),
};

function refusal(ip: string, port: number, more: Partial<ExternalIpFacts> = {}): string | undefined {
  return externalIpRefusal({ address: address(ip), port }, TCP, { ...facts, ...more });
}

test('an address of nobody is taken, and one of the node where nobody listens', () => {
  assert.equal(refusal('198.51.100.1', 22), undefined);
  assert.equal(refusal('192.0.2.1', 80), undefined);
});

test('a port that a program listens on is not taken from it', () => {
  assert.match(refusal('192.0.2.1', 22) ?? '', /program on this node listens/);
  assert.equal(
    externalIpRefusal({ address: address('192.0.2.1'), port: 22 }, { ...TCP, protocol: 'UDP' }, facts),
    undefined,
  );
});

test('who listens on an address that is not of the node is not asked', () => {
  assert.equal(refusal('198.51.100.1', 22, { isListening: () => true }), undefined);
});

test('a cluster IP is not taken, on any port', () => {
  assert.match(refusal('10.96.0.10', 9999) ?? '', /the cluster IP of a Service/);
});

test("an endpoint keeps its traffic, and other ports of its address are nobody's", () => {
  assert.match(refusal('10.244.1.11', 8080) ?? '', /an endpoint of a Service/);
  assert.equal(refusal('10.244.1.11', 8081), undefined);
});

test('a NodePort keeps its traffic at the addresses of the node', () => {
  assert.match(refusal('192.0.2.1', 30_080) ?? '', /the NodePort of a Service/);
  assert.equal(refusal('198.51.100.1', 30_080), undefined);
});

test('where pods are, only an address of the node is taken', () => {
  const podCidrs = [cidr('10.244.0.0/16'), cidr('192.0.2.0/24')];
  assert.match(refusal('10.244.7.7', 5432, { podCidrs }) ?? '', /the range of pod addresses/);
  assert.match(refusal('192.0.2.2', 80, { podCidrs }) ?? '', /the range of pod addresses/);
  assert.equal(refusal('192.0.2.1', 80, { podCidrs }), undefined);
});

test('with a list of allowed ones, others are not taken', () => {
  const allowed = [cidr('198.51.100.0/24'), cidr('2001:db8::/32')];
  assert.equal(refusal('198.51.100.1', 80, { allowed }), undefined);
  assert.equal(refusal('2001:db8::5', 80, { allowed }), undefined);
  assert.match(refusal('198.51.101.1', 80, { allowed }) ?? '', /not among/);
  assert.match(refusal('192.0.2.1', 80, { allowed: [] }) ?? '', /not among/);
});
