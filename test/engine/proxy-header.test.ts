import assert from 'node:assert/strict';
import { test } from 'node:test';
import { proxyHeader } from '../../src/engine/proxy-header.ts';
import type { Endpoint } from '../../src/model/endpoint.ts';
import { address as ip } from '../support/model.ts';

function at(address: string, port: number): Endpoint {
  return { address: ip(address), port };
}

const V4 = [at('192.168.0.1', 56_324), at('192.168.0.11', 443)] as const;
const V6 = [at('fd00:10::7', 65_535), at('2001:db8:0:1:2:3:4:5', 8)] as const;
const MIXED = [at('10.0.0.1', 1), at('fd00::1', 65_535)] as const;
const LONGEST = at('ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 65_535);

// Signature, version and command, family and protocol, length; addresses; ports.
const VECTORS = [
  ['v1', 'IPv4', V4, '50524f58592054435034203139322e3136382e302e31203139322e3136382e302e3131203536333234203434330d0a'],
  ['v1', 'IPv6', V6, Buffer.from('PROXY TCP6 fd00:10::7 2001:db8:0:1:2:3:4:5 65535 8\r\n').toString('hex')],
  ['v1', 'both families', MIXED, Buffer.from('PROXY TCP6 ::ffff:10.0.0.1 fd00::1 1 65535\r\n').toString('hex')],
  ['v2', 'IPv4', V4, '0d0a0d0a000d0a515549540a2111000cc0a80001c0a8000bdc0401bb'],
  [
    'v2',
    'IPv6',
    V6,
    '0d0a0d0a000d0a515549540a21210024fd00001000000000000000000000000720010db8000000010002000300040005ffff0008',
  ],
  [
    'v2',
    'both families',
    MIXED,
    '0d0a0d0a000d0a515549540a2121002400000000000000000000ffff0a000001fd0000000000000000000000000000010001ffff',
  ],
] as const;

for (const [version, what, [client, destination], expected] of VECTORS) {
  test(`PROXY protocol ${version} over ${what}`, () => {
    assert.equal(proxyHeader(version, client, destination).toString('hex'), expected);
  });
}

test('the longest header of PROXY protocol v1 has the length that the specification gives', () => {
  assert.equal(proxyHeader('v1', LONGEST, LONGEST).length, 104);
});
