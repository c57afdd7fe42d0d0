import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Ability, familiesOf, WILDCARDS } from '../../src/app/served-families.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { IptablesError } from '../../src/model/iptables.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address } from '../rules/fixtures.ts';

const FAMILIES = ['IPv4', 'IPv6'] as const;
const NODE = { IPv4: address('192.168.50.10'), IPv6: address('fd00:50::10') } as const;
const NO_NAT = new IptablesError('failed', 'ip6tables-restore ended with 3: unable to initialize table');

function ability() {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const node = {
    addresses: new Set<IpFamily>(FAMILIES),
    failures: new Map<IpFamily, Error>(),
    probed: [] as IpFamily[],
  };
  const it = new Ability({
    families: familiesOf(WILDCARDS.IPv4),
    address: (family) => (node.addresses.has(family) ? NODE[family] : undefined),
    probe: async (family) => {
      node.probed.push(family);
      const failure = node.failures.get(family);
      if (failure !== undefined) throw failure;
    },
    clock,
    log,
  });
  const told = () => log.of('info').map(({ message, fields }) => `${message}: ${fields?.['reason'] ?? ''}`);
  return { it, node, clock, told };
}

describe('the families that are served at the start', () => {
  for (const [what, addresses, failing, expected] of [
    ['both', FAMILIES, [], FAMILIES],
    ['the only one with an address, whatever its rules say', ['IPv6'], ['IPv6'], ['IPv6']],
    ['those with rules', FAMILIES, ['IPv4'], ['IPv6']],
    ['the primary one where there are no rules at all, so that its errors show', FAMILIES, FAMILIES, ['IPv4']],
  ] as const) {
    test(what, async () => {
      const { it, node } = ability();
      node.addresses = new Set(addresses);
      for (const family of failing) node.failures.set(family, NO_NAT);
      assert.deepEqual(await it.atStart(), expected);
    });
  }

  test('none without an address', async () => {
    const { it, node } = ability();
    node.addresses.clear();
    await assert.rejects(it.atStart(), /this node has no IPv4 or IPv6 address but loopback ones/);
  });

  test('also those whose rules are only locked at the moment', async () => {
    const { it, node } = ability();
    node.failures.set('IPv6', new IptablesError('locked', 'another program holds the lock'));
    assert.deepEqual(await it.atStart(), FAMILIES);
  });
});

describe('a family that cannot be served', () => {
  test('can be as soon as there is an address', async () => {
    const { it, node } = ability();
    node.addresses.delete('IPv6');
    assert.deepEqual(await it.of(['IPv6']), []);
    node.addresses.add('IPv6');
    assert.deepEqual(await it.of(['IPv6']), ['IPv6']);
  });

  test('is probed again once a minute, and at once when its address comes back', async () => {
    const { it, node, clock } = ability();
    node.failures.set('IPv6', NO_NAT);
    for (let i = 0; i < 3; i++) assert.deepEqual(await it.of(['IPv6']), []);
    assert.equal(node.probed.length, 1);
    clock.advance(60_000);
    assert.deepEqual(await it.of(['IPv6']), []);
    assert.equal(node.probed.length, 2);
    node.addresses.delete('IPv6');
    await it.of(['IPv6']);
    node.addresses.add('IPv6');
    node.failures.clear();
    assert.deepEqual(await it.of(['IPv6']), ['IPv6']);
  });

  test('is not taken for one that can be while the rules are locked', async () => {
    const { it, node, clock, told } = ability();
    const locked = new IptablesError('locked', 'another program holds the lock');
    node.failures.set('IPv6', locked);
    assert.deepEqual(await it.of(['IPv6']), []);
    node.failures.set('IPv6', NO_NAT);
    assert.deepEqual(await it.of(['IPv6']), [], 'looked at again at once, and then known for a minute');
    await it.tell(['IPv4']);
    clock.advance(60_000);
    node.failures.set('IPv6', locked);
    assert.deepEqual(await it.of(['IPv6']), []);
    await it.tell(['IPv4']);
    assert.deepEqual(told(), [`Only IPv4 is served: ${NO_NAT.message}`]);
    node.failures.clear();
    assert.deepEqual(await it.of(['IPv6']), ['IPv6']);
  });

  test('is told of once for each reason, and when it is served', async () => {
    const { it, node, told } = ability();
    node.addresses.delete('IPv6');
    for (let i = 0; i < 2; i++) await it.tell(['IPv4']);
    node.addresses.add('IPv6');
    node.failures.set('IPv6', NO_NAT);
    for (let i = 0; i < 2; i++) await it.tell(['IPv4']);
    await it.tell(FAMILIES);
    assert.deepEqual(told(), [
      'Only IPv4 is served: this node has no other address',
      `Only IPv4 is served: ${NO_NAT.message}`,
      'IPv4 and IPv6 are served now: ',
    ]);
  });

  test('is not told of where the bind address is for one alone', async () => {
    assert.equal(familiesOf(address('127.0.0.1')).length, 1);
    assert.throws(() => familiesOf(address('192.0.2.1')), /is not an address of this node; .* or 0\.0\.0\.0/);
  });
});
