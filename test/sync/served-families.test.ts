import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { IptablesError } from '../../src/capture/iptables/iptables.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { familiesOf, ServedFamilies } from '../../src/sync/served-families.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address } from '../support/model.ts';

const FAMILIES = ['IPv4', 'IPv6'] as const;
const NODE = { IPv4: address('192.168.50.10'), IPv6: address('fd00:50::10') } as const;
const NO_NAT = new IptablesError('failed', 'ip6tables-restore ended with 3: unable to initialize table');
const LOCKED = new IptablesError('locked', 'another program holds the lock');

function rig() {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const node = {
    addresses: new Set<IpFamily>(FAMILIES),
    failures: new Map<IpFamily, Error>(),
    probed: [] as IpFamily[],
  };
  const families = new ServedFamilies({
    families: FAMILIES,
    address: (family) => (node.addresses.has(family) ? NODE[family] : undefined),
    probe: async (family) => {
      node.probed.push(family);
      const failure = node.failures.get(family);
      if (failure !== undefined) throw failure;
    },
    clock,
    log,
  });
  const reported = () => log.of('info').map(({ message, fields }) => `${message}: ${fields?.['reason'] ?? ''}`);
  return { families, node, clock, reported };
}

/** Serves IPv4, and not yet IPv6. */
function oneServed() {
  const it = rig();
  it.families.add('IPv4');
  return it;
}

describe('the families that are served at the start', () => {
  for (const [what, addresses, failing, expected] of [
    ['both', FAMILIES, [], FAMILIES],
    ['the only one with an address, even without rules', ['IPv6'], ['IPv6'], ['IPv6']],
    ['those with rules', FAMILIES, ['IPv4'], ['IPv6']],
    ['the primary one where there are no rules at all, so that its errors are visible', FAMILIES, FAMILIES, ['IPv4']],
  ] as const) {
    test(what, async () => {
      const { families, node } = rig();
      node.addresses = new Set(addresses);
      for (const family of failing) node.failures.set(family, NO_NAT);
      await families.begin();
      assert.deepEqual(families.active, expected);
    });
  }

  test('need an address', async () => {
    const { families, node } = rig();
    node.addresses.clear();
    await assert.rejects(families.begin(), /this node has no IPv4 or IPv6 address but loopback ones/);
  });

  test('include families whose rules are only locked at the moment', async () => {
    const { families, node } = rig();
    node.failures.set('IPv6', LOCKED);
    await families.begin();
    assert.deepEqual(families.active, FAMILIES);
  });
});

describe('a family that cannot be served', () => {
  test('is served as soon as there is an address', async () => {
    const { families, node } = oneServed();
    node.addresses.delete('IPv6');
    assert.deepEqual(await families.servable(), []);
    node.addresses.add('IPv6');
    assert.deepEqual(await families.servable(), ['IPv6']);
  });

  test('is probed again once a minute, and at once when its address comes back', async () => {
    const { families, node, clock } = oneServed();
    node.failures.set('IPv6', NO_NAT);
    for (let i = 0; i < 3; i++) assert.deepEqual(await families.servable(), []);
    assert.equal(node.probed.length, 1);
    clock.advance(60_000);
    assert.deepEqual(await families.servable(), []);
    assert.equal(node.probed.length, 2);
    node.addresses.delete('IPv6');
    await families.servable();
    node.addresses.add('IPv6');
    node.failures.clear();
    assert.deepEqual(await families.servable(), ['IPv6']);
  });

  test('does not become servable while the rules are locked', async () => {
    const { families, node, clock, reported } = oneServed();
    node.failures.set('IPv6', LOCKED);
    assert.deepEqual(await families.servable(), []);
    node.failures.set('IPv6', NO_NAT);
    assert.deepEqual(await families.servable(), [], 'probed again at once, and then known for a minute');
    await families.report();
    clock.advance(60_000);
    node.failures.set('IPv6', LOCKED);
    assert.deepEqual(await families.servable(), []);
    await families.report();
    assert.deepEqual(reported(), [`Only IPv4 is served: ${NO_NAT.message}`]);
    node.failures.clear();
    assert.deepEqual(await families.servable(), ['IPv6']);
  });

  test('is logged once for each reason, and when it is served', async () => {
    const { families, node, reported } = oneServed();
    node.addresses.delete('IPv6');
    for (let i = 0; i < 2; i++) await families.report();
    node.addresses.add('IPv6');
    node.failures.set('IPv6', NO_NAT);
    for (let i = 0; i < 2; i++) await families.report();
    families.add('IPv6');
    await families.report();
    assert.deepEqual(reported(), [
      'Only IPv4 is served: this node has no other address',
      `Only IPv4 is served: ${NO_NAT.message}`,
      'IPv4 and IPv6 are served now: ',
    ]);
  });
});

test('a bind address stands for its own family, a wildcard for both', () => {
  const local = () => [address('192.168.50.10')];
  const families = (text: string) => familiesOf(address(text), local).map(({ family }) => family);
  assert.deepEqual([families('192.168.50.10'), families('0.0.0.0')], [['IPv4'], FAMILIES]);
  assert.deepEqual(families('::'), FAMILIES.toReversed());
  assert.throws(() => families('192.0.2.1'), /is not an address of this node; .* or 0\.0\.0\.0/);
});
