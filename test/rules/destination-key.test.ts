import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bucketChain, isOurs, NODEPORT_HOST, PORTALS_CONTAINER, ROOT_CHAINS } from '../../src/rules/chains.ts';
import { addressKey, portKey, prefixMatch } from '../../src/rules/rule-tree.ts';
import { address } from './fixtures.ts';

describe('the key of a destination', () => {
  test('is its address, protocol and port', () => {
    assert.equal(addressKey(address('10.96.0.1')) + portKey('TCP', 80), '0a600001t0050');
    assert.equal(addressKey(address('fd00:96::1')), 'fd000096000000000000000000000001');
    assert.equal(addressKey(address('::ffff:10.96.0.1')), '00000000000000000000ffff0a600001');
    assert.equal(portKey('UDP', 65_535), 'uffff');
  });

  test('has prefixes that a rule can match', () => {
    for (const [prefix, match] of [
      ['0', '-d 0.0.0.0/4'],
      ['0a6', '-d 10.96.0.0/12'],
      ['0a600001', '-d 10.96.0.1/32'],
      ['0a600001u', '-d 10.96.0.1/32 -p udp'],
      ['0a600001t00', '-d 10.96.0.1/32 -p tcp -m tcp --dport 0:255'],
      ['t', '-p tcp'],
      ['u7', '-p udp -m udp --dport 28672:32767'],
      ['t7530', '-p tcp -m tcp --dport 30000'],
    ] as const) {
      assert.equal(prefixMatch(prefix, 'IPv4'), match);
    }
    assert.equal(prefixMatch('fd0000960', 'IPv6'), '-d fd00:96::/36');
    assert.equal(prefixMatch('fd000096000000000000000000000001t', 'IPv6'), '-d fd00:96::1/128 -p tcp');
  });
});

describe('the chain of a bucket', () => {
  test('is named after what is in it, in no more letters than the kernel has room for', () => {
    assert.equal(bucketChain(PORTALS_CONTAINER, '0a600'), 'KUBE-USP-PC-0a600');
    assert.equal(bucketChain(NODEPORT_HOST, 't7'), 'KUBE-USP-NH-t7');
    for (const root of [...ROOT_CHAINS.nat, ...ROOT_CHAINS.filter]) {
      const full = `${'f'.repeat(32)}t0050`;
      const names = Array.from(full, (_, index) => bucketChain(root, full.slice(0, index + 1)));
      assert.equal(new Set(names).size, full.length);
      for (const name of names) assert.match(name, /^KUBE-USP-[\w-]{3,19}$/);
    }
  });

  test('is told from chains of other programs', () => {
    const keys = ['0a600001t0050', 'fd000096000000000000000000000001u0035', 't7530', 'u0035'];
    for (const key of keys) {
      for (let length = 1; length <= key.length; length++) {
        const name = bucketChain(PORTALS_CONTAINER, key.slice(0, length));
        assert.ok(isOurs('nat', name), name);
      }
    }
    for (const name of [
      'KUBE-USP-PC-',
      'KUBE-USP-PC-0a600g',
      'KUBE-USP-PC-0A60',
      'KUBE-USP-XX-0a60',
      'KUBE-USP-PC-0a60 x',
      'KUBE-USP-PC-0a60\n',
      'KUBE-USP-PC-habc',
      'KUBE-USP-PC-0a6t0',
      'XKUBE-USP-PC-0a60',
      'KUBE-SERVICES',
      'KUBE-PORTALS-CONTAINER-2',
      'PREROUTING',
    ]) {
      assert.equal(isOurs('nat', name), false, name);
    }
    assert.equal(isOurs('filter', PORTALS_CONTAINER), false, 'only where it belongs');
  });
});
