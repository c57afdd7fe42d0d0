import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAddress } from '../../src/model/address.ts';
import { cidrContains, parseCidr } from '../../src/model/cidr.ts';

const NETWORKS: readonly (readonly [cidr: string, network: string])[] = [
  ['192.168.50.10/24', '192.168.50.0/24'],
  ['10.1.2.3/32', '10.1.2.3/32'],
  ['10.1.2.3/31', '10.1.2.2/31'],
  ['255.255.255.255/1', '128.0.0.0/1'],
  ['1.2.3.4/0', '0.0.0.0/0'],
  ['fd00:1:2:0:ffff::ff/64', 'fd00:1:2::/64'],
  ['2001:DB8:FFFF::1/33', '2001:db8:8000::/33'],
  ['fd00::1/128', 'fd00::1/128'],
  ['::1.2.3.4/120', '::1.2.3.0/120'],
  ['::/0', '::/0'],
];
for (const [cidr, network] of NETWORKS) {
  test(`${cidr} is the network ${network}`, () => {
    const parsed = parseCidr(cidr);
    assert.equal(parsed && `${parsed.network}/${parsed.prefixLength}`, network);
  });
}

test('what is no CIDR is refused', () => {
  for (const text of ['', '10.0.0.1', '10.0.0.1/', '10.0.0.1/33', '10.0.0.1/-1', '10.0.0.1/8/8', '10.0.0.1/8 -j X']) {
    assert.equal(parseCidr(text), undefined, text);
  }
  for (const text of ['fd00::/129', 'fe80::1%eth0/64', 'primary', '10.0.0/8', '10.0.0.1/0x8']) {
    assert.equal(parseCidr(text), undefined, text);
  }
});

test('a network contains the addresses of its own family that share its prefix', () => {
  const CASES: readonly (readonly [cidr: string, address: string, contains: boolean])[] = [
    ['192.0.2.0/24', '192.0.2.255', true],
    ['192.0.2.0/24', '192.0.3.0', false],
    ['192.0.2.128/25', '192.0.2.127', false],
    ['0.0.0.0/0', '255.0.0.1', true],
    ['0.0.0.0/0', 'fd00::1', false],
    ['::/0', '192.0.2.1', false],
    ['2001:db8::/33', '2001:db8:7fff::1', true],
    ['2001:db8::/33', '2001:db8:8000::1', false],
    ['fd00::1/128', 'fd00::1', true],
  ];
  for (const [cidr, text, contains] of CASES) {
    const [network, address] = [parseCidr(cidr), parseAddress(text)];
    assert.ok(network && address);
    assert.equal(cidrContains(network, address), contains, `${text} in ${cidr}`);
  }
});
