import assert from 'node:assert/strict';
import { test } from 'node:test';
import { destinationMatch } from '../../src/rules/cidr.ts';

const MATCHES: readonly (readonly [cidr: string, match: string])[] = [
  ['192.168.50.10/24', '-d 192.168.50.0/24'],
  ['10.1.2.3/32', '-d 10.1.2.3/32'],
  ['10.1.2.3/31', '-d 10.1.2.2/31'],
  ['255.255.255.255/1', '-d 128.0.0.0/1'],
  ['1.2.3.4/0', ''],
  ['fd00:1:2:0:ffff::ff/64', '-d fd00:1:2::/64'],
  ['2001:DB8:FFFF::1/33', '-d 2001:db8:8000::/33'],
  ['fd00::1/128', '-d fd00::1/128'],
  ['::1.2.3.4/120', '-d ::1.2.3.0/120'],
  ['::/0', ''],
];
for (const [cidr, match] of MATCHES) {
  test(`${cidr} is matched by "${match}"`, () => {
    assert.deepEqual(destinationMatch(cidr), { family: cidr.includes(':') ? 'IPv6' : 'IPv4', match });
  });
}

test('what is no CIDR matches nothing', () => {
  for (const text of ['', '10.0.0.1', '10.0.0.1/', '10.0.0.1/33', '10.0.0.1/-1', '10.0.0.1/8/8', '10.0.0.1/8 -j X']) {
    assert.equal(destinationMatch(text), undefined, text);
  }
  for (const text of ['fd00::/129', 'fe80::1%eth0/64', 'primary', '10.0.0/8', '10.0.0.1/0x8']) {
    assert.equal(destinationMatch(text), undefined, text);
  }
});
