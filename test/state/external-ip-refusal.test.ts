import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ExternalIpFacts, externalIpRefusal } from '../../src/state/external-ip-refusal.ts';
import { address, cidr } from '../rules/fixtures.ts';

const facts: ExternalIpFacts = {
  isClusterIP: (one) => one === '10.96.0.10',
  isListening: (one, port, protocol) => one === '192.0.2.1' && port === 22 && protocol === 'TCP',
  nodeAddresses: new Set([address('192.0.2.1')]),
};

function refusal(ip: string, port: number, more: Partial<ExternalIpFacts> = {}): string | undefined {
  return externalIpRefusal({ address: address(ip), port }, 'TCP', { ...facts, ...more });
}

test('an address of nobody is taken, and one of the node where nobody listens', () => {
  assert.equal(refusal('198.51.100.1', 22), undefined);
  assert.equal(refusal('192.0.2.1', 80), undefined);
});

test('a port that a program listens on is not taken from it', () => {
  assert.match(refusal('192.0.2.1', 22) ?? '', /program on this node listens/);
  assert.equal(externalIpRefusal({ address: address('192.0.2.1'), port: 22 }, 'UDP', facts), undefined);
});

test('who listens on an address that is not of the node is not asked', () => {
  assert.equal(refusal('198.51.100.1', 22, { isListening: () => true }), undefined);
});

test('a cluster IP is not taken, on any port', () => {
  assert.match(refusal('10.96.0.10', 9999) ?? '', /the cluster IP of a Service/);
});

test('with a list of allowed ones, others are not taken', () => {
  const allowed = [cidr('198.51.100.0/24'), cidr('2001:db8::/32')];
  assert.equal(refusal('198.51.100.1', 80, { allowed }), undefined);
  assert.equal(refusal('2001:db8::5', 80, { allowed }), undefined);
  assert.match(refusal('198.51.101.1', 80, { allowed }) ?? '', /not among/);
  assert.match(refusal('192.0.2.1', 80, { allowed: [] }) ?? '', /not among/);
});
