import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { cidrContains, parseAddress, parseCidr, specialAddressReason } from '../../src/model/address.ts';
import { partsOf } from '../../src/model/service.ts';

/** Each spelling is either no address at all, or known for what it is. */
const SPECIAL: Readonly<Record<string, readonly string[]>> = {
  unspecified: ['0.0.0.0', '0.1.2.3', '::', '0:0:0:0:0:0:0:0', '0000::', '::0.0.0.0'],
  loopback: ['127.0.0.1', '127.255.255.254', '::1', '0:0:0:0:0:0:0:1', '::0001', '::0.0.0.1'],
  'link-local': ['169.254.169.254', '169.254.0.0', 'fe80::1', 'FE80::1', 'febf::1', 'fe80:0::169.254.169.254'],
  multicast: ['224.0.0.1', '239.255.255.255', 'ff02::1', 'FF00::', 'ffff::'],
  broadcast: ['255.255.255.255'],
  'IPv4-mapped': ['::ffff:127.0.0.1', '::FFFF:10.0.0.1', '::ffff:7f00:1', '0:0:0:0:0:ffff:a9fe:a9fe', '::ffff:0:0'],
  'IPv4-compatible': ['::127.0.0.1', '::7f00:1', '::2', '0:0:0:0:0:0:10.0.0.1'],
};

describe('special addresses are known in every spelling', () => {
  for (const [reason, spellings] of Object.entries(SPECIAL)) {
    for (const text of spellings) {
      test(`${text} is ${reason}`, () => {
        const address = parseAddress(text);
        assert.ok(address);
        assert.equal(specialAddressReason(address), reason);
      });
    }
  }
});

test('what only some parsers take for an address is none', () => {
  const texts = [
    '127.1',
    '2130706433',
    '0x7f.0.0.1',
    '0177.0.0.1',
    '127.0.0.01',
    '127.0.0.1.',
    ' 127.0.0.1',
    '127.0.0.1\n',
  ];
  texts.push('[::1]', '::1%lo', 'fe80::1%eth0', '::ffff:127.1', '1:2:3:4:5:6:7:8:9', 'localhost', '１２７.0.0.1');
  for (const text of texts) assert.equal(parseAddress(text), undefined, text);
});

test('ordinary addresses are not special', () => {
  for (const text of [
    '1.0.0.1',
    '10.0.0.1',
    '126.255.255.255',
    '169.253.1.1',
    '223.255.255.255',
    '240.0.0.1',
    '255.255.255.254',
    'fd00::1',
    '2001:db8::1',
  ]) {
    const address = parseAddress(text);
    assert.ok(address);
    assert.equal(specialAddressReason(address), undefined, text);
  }
});

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

test('names are split into namespace, Service and port', () => {
  assert.deepEqual(partsOf('a/b'), { namespace: 'a', service: 'b', portName: '' });
  assert.deepEqual(partsOf('a/b:c'), { namespace: 'a', service: 'b', portName: 'c' });
});
