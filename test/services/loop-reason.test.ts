import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CaptureFacts, loopReason } from '../../src/services/loop-reason.ts';
import { address } from '../rules/fixtures.ts';

const facts: CaptureFacts = {
  isServiceAddress: (to, port, protocol) => to === '10.96.0.1' && port === 80 && protocol === 'TCP',
  isNodePort: (port, protocol) => port === 30_080 && protocol === 'TCP',
  isProxyPort: (port, protocol) => port === 40_001 && protocol === 'UDP',
  isMarking: false,
  nodeAddresses: new Set([address('192.0.2.1'), address('2001:db8::1')]),
};

const CASES: readonly (readonly [to: string, port: number, protocol: 'TCP' | 'UDP', reason: RegExp | undefined])[] = [
  ['10.96.0.1', 80, 'TCP', /an address of a Service, so connections would come back/],
  ['10.96.0.1', 80, 'UDP', undefined],
  ['10.96.0.1', 81, 'TCP', undefined],
  ['192.0.2.1', 30_080, 'TCP', /a NodePort on this node/],
  ['2001:db8::1', 30_080, 'TCP', /a NodePort on this node/],
  ['192.0.2.2', 30_080, 'TCP', undefined],
  ['192.0.2.1', 30_080, 'UDP', undefined],
  ['192.0.2.1', 40_001, 'UDP', /one of the proxy's own ports/],
  ['192.0.2.1', 40_001, 'TCP', undefined],
  ['192.0.2.2', 40_001, 'UDP', undefined],
  ['192.0.2.1', 8080, 'TCP', undefined],
];

for (const [to, port, protocol, reason] of CASES) {
  test(`${to} port ${port}/${protocol} ${reason === undefined ? 'is fine' : 'leads back'}`, () => {
    const found = loopReason({ address: address(to), port }, protocol, facts);
    if (reason === undefined) assert.equal(found, undefined);
    else assert.match(found ?? '', reason);
  });
}

test('a NodePort does not take connections that rules spare', () => {
  const found = (port: number, protocol: 'TCP' | 'UDP') =>
    loopReason({ address: address('192.0.2.1'), port }, protocol, { ...facts, isMarking: true });
  assert.equal(found(30_080, 'TCP'), undefined);
  assert.match(found(40_001, 'UDP') ?? '', /one of the proxy's own ports/);
});
