import assert from 'node:assert/strict';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { describe, test } from 'node:test';
import {
  chooseHostAddress,
  type HostAddress,
  hostAddress,
  localAddresses,
  machine,
  NodeAddress,
} from '../../src/kernel/addresses.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address as ip } from '../support/model.ts';

function ipv4(address: string): NetworkInterfaceInfo {
  return { address, netmask: '255.255.255.0', family: 'IPv4', mac: '', internal: false, cidr: null };
}

function ipv6(address: string): NetworkInterfaceInfo {
  return { address, netmask: '', family: 'IPv6', mac: '', internal: false, cidr: null, scopeid: 0 };
}

/** The text of `/proc/net/route` with default routes by these interfaces, the preferred first. */
const routes = (...names: readonly string[]) =>
  names
    .map((name, metric) => [name, '00000000', '0101A8C0', '0003', 0, 0, metric, '00000000', 0, 0, 0].join('\t'))
    .join('\n');

const ROUTE6 = `${'0'.repeat(32)} 00 ${'0'.repeat(32)} 00 ${'0'.repeat(32)} 00000400 00000002 00000000 00000003 eth0\n`;

describe('the host address', () => {
  const lo = [{ ...ipv4('127.0.0.1'), internal: true }, ipv6('::1')];
  const docker0 = [ipv4('172.17.0.1'), ipv6('fd00:17::1')];

  for (const [what, text, interfaces, expected, isFallback] of [
    [
      'is the first global IPv4 address of the interface with the best default route',
      routes('eth0', 'wlan0'),
      {
        ...{ lo, docker0, wlan0: [ipv4('198.51.100.1')] },
        eth0: [ipv6('2001:db8::1'), ipv4('169.254.1.1'), ipv4('192.0.2.10'), ipv4('192.0.2.11')],
      },
      '192.0.2.10',
      false,
    ],
    [
      'is the next route’s where the best one’s interface has none',
      routes('eth0', 'gone', 'eth1'),
      { lo, docker0, eth0: [ipv6('2001:db8::1')], eth1: [ipv4('192.0.2.10')] },
      '192.0.2.10',
      false,
    ],
    [
      'without a default route is any but loopback and link-local, and marked as a fallback',
      '',
      { lo, eth0: [ipv4('169.254.1.1')], eth1: [ipv4('192.0.2.10')] },
      '192.0.2.10',
      true,
    ],
    [
      'may be of 240.0.0.0/4, which networks use that have run out of others',
      routes('eth0'),
      { lo, eth0: [ipv4('240.0.0.10')] },
      '240.0.0.10',
      false,
    ],
    [
      'is marked as a fallback too where the default route’s interface has no address',
      routes('eth0'),
      { lo, eth1: [ipv4('192.0.2.10')] },
      '192.0.2.10',
      true,
    ],
    ['does not exist where there is only loopback', routes('constructor'), { lo }, undefined, false],
    ['does not exist without interfaces', '', {}, undefined, false],
  ] as const) {
    test(what, () => {
      const chosen = chooseHostAddress(text, interfaces);
      assert.deepEqual([chosen?.address, chosen?.isFallback ?? false], [expected, isFallback]);
    });
  }

  test('of IPv6 is the first global one', () => {
    const eth0 = [ipv4('192.0.2.10'), ipv6('fe80::1'), ipv6('2001:db8::1')];
    assert.deepEqual(chooseHostAddress(ROUTE6, { docker0, eth0 }, 'IPv6'), {
      address: '2001:db8::1',
      interfaceName: 'eth0',
      isFallback: false,
    });
    assert.equal(chooseHostAddress(ROUTE6, { eth0: [ipv6('fe80::1')] }, 'IPv6'), undefined);
  });

  test('of this machine is one of its local addresses', () => {
    const local = localAddresses('IPv4');
    assert.ok(local.includes(ip('127.0.0.1')) || local.length === 0, String(local));
    const chosen = hostAddress('IPv4');
    assert.ok(chosen === undefined || local.includes(chosen.address));
  });
});

const EXPECTED = { isExpected: true };

function harness() {
  const log = new RecordingLog();
  const machine = {
    found: { address: ip('192.168.50.10'), interfaceName: 'eth0', isFallback: false } as HostAddress | undefined,
    local: [ip('127.0.0.1'), ip('192.168.50.10'), ip('10.0.0.5')],
  };
  const node = new NodeAddress('IPv4', log, {
    hostAddress: () => machine.found,
    localAddresses: () => machine.local,
  });
  const warnings = () => log.of('warn').map((line) => line.message);
  return { node, machine, warnings };
}

describe('the address of the node in rules', () => {
  test('is the default route’s address until the Node object names another', () => {
    const h = harness();
    assert.equal(h.node.current(), '192.168.50.10');
    h.node.prefer([ip('fd00::5'), ip('10.0.0.5')], EXPECTED);
    assert.equal(h.node.current(), '10.0.0.5');
    assert.deepEqual(h.warnings(), []);
  });

  test('is never one that this machine does not have, which is logged once', () => {
    const h = harness();
    h.node.prefer([ip('203.0.113.9')], EXPECTED);
    for (let i = 0; i < 3; i++) assert.equal(h.node.current(), '192.168.50.10');
    assert.equal(h.warnings().length, 1);
    assert.match(h.warnings()[0] ?? '', /no address of its Node object/);
    h.machine.local = [...h.machine.local, ip('203.0.113.9')];
    assert.equal(h.node.current(), '203.0.113.9');
  });

  test('falls back when the Node object names none, with a warning where one is expected', () => {
    const h = harness();
    h.node.prefer([ip('fd00::5')], { isExpected: false });
    assert.equal(h.node.current(), '192.168.50.10');
    assert.deepEqual(h.warnings(), []);
    for (let i = 0; i < 3; i++) {
      h.node.prefer([ip('fd00::5')], EXPECTED);
      assert.equal(h.node.current(), '192.168.50.10');
    }
    assert.equal(h.warnings().length, 1);
    assert.match(h.warnings()[0] ?? '', /names no IPv4 address/);
  });

  test('warns when no default route leads to it', () => {
    const h = harness();
    h.machine.found = { address: ip('10.0.0.5'), interfaceName: 'cbr0', isFallback: true };
    for (let i = 0; i < 3; i++) assert.equal(h.node.current(), '10.0.0.5');
    assert.equal(h.warnings().length, 1);
  });

  test('is undefined when the machine has no address', () => {
    const h = harness();
    h.node.current();
    h.machine.found = undefined;
    assert.equal(h.node.current(), undefined);
  });
});

test('all of 127.0.0.0/8 is local, and reached from the address of the loopback interface', async () => {
  const [loopback] = networkInterfaces()['lo']?.filter(({ family }) => family === 'IPv4') ?? [];
  for (const text of ['127.0.0.2', '127.255.255.254']) {
    assert.ok(machine.isLocal(ip(text)));
    const { source, interfaceName } = await machine.departureTo(ip(text));
    assert.deepEqual([source, interfaceName], [loopback?.address, 'lo']);
  }
});

test('packets to a local address have it as their source; packets to others follow a route', async () => {
  const own = Object.values(networkInterfaces())
    .flatMap((infos) => infos ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal);
  if (own !== undefined) {
    assert.deepEqual(await machine.departureTo(ip(own.address)), { source: own.address, interfaceName: 'lo' });
  }
  const elsewhere = ip('192.0.2.1');
  assert.equal(machine.isLocal(elsewhere), false);
  assert.equal((await machine.departureTo(elsewhere)).interfaceName, machine.interfaceTowards(elsewhere));
});
