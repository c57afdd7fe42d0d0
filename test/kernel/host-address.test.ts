import assert from 'node:assert/strict';
import type { NetworkInterfaceInfo } from 'node:os';
import { describe, test } from 'node:test';
import { defaultRouteInterfaces, defaultRouteInterfaces6 } from '../../src/kernel/default-route.ts';
import { chooseHostAddress, hostAddress, localAddresses } from '../../src/kernel/host-address.ts';

const HEADER = 'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT';

interface Route {
  name: string;
  destination?: string;
  flags?: string;
  metric?: number;
  mask?: string;
}

function table(...routes: Route[]): string {
  const lines = routes.map(({ name, destination = '00000000', flags = '0003', metric = 0, mask = '00000000' }) =>
    [name, destination, '0101A8C0', flags, 0, 0, metric, mask, 0, 0, 0].join('\t'),
  );
  // The kernel pads every line with spaces.
  return [HEADER, ...lines].map((line) => `${line.padEnd(127)}\n`).join('');
}

function ipv4(address: string): NetworkInterfaceInfo {
  return { address, netmask: '255.255.255.0', family: 'IPv4', mac: '', internal: false, cidr: null };
}

function ipv6(address: string): NetworkInterfaceInfo {
  return { address, netmask: '', family: 'IPv6', mac: '', internal: false, cidr: null, scopeid: 0 };
}

describe('the interfaces of default routes', () => {
  test('come in the order of their metric, and in the file’s order where it is equal', () => {
    const text = table({ name: 'wlan0', metric: 600 }, { name: 'eth1', metric: 100 }, { name: 'eth0', metric: 100 });
    assert.deepEqual(defaultRouteInterfaces(text), ['eth1', 'eth0', 'wlan0']);
  });

  test('are those whose route is for everything, up, and no rejection', () => {
    const text = table(
      { name: 'net', destination: '0001A8C0', mask: '00FFFFFF' },
      { name: 'vpn', mask: '00000080' },
      { name: 'down', flags: '0002' },
      { name: 'lo', flags: '0201' },
      { name: 'ppp0', flags: '0001' },
    );
    assert.deepEqual(defaultRouteInterfaces(text), ['ppp0']);
  });

  test('are none in an empty table, an empty file and nonsense', () => {
    for (const text of [table(), '', '\n\n', `${HEADER}\nwhat is this\n`, `${HEADER}\neth0\t00000000`]) {
      assert.deepEqual(defaultRouteInterfaces(text), [], text);
    }
  });
});

const DEFAULT_IPV6 = `${'0'.repeat(32)} 00`;

/** A line of `/proc/net/ipv6_route`. */
function route6(name: string, { to = DEFAULT_IPV6, metric = '00000400', flags = '00000003' } = {}): string {
  return `${to} ${'0'.repeat(32)} 00 fd000000000000000000000000000001 ${metric} 00000002 00000000 ${flags} ${name.padStart(8)}\n`;
}

describe('the interfaces of default routes of IPv6', () => {
  test('come in the order of their metric, and are those for everything that are up and no rejection', () => {
    const text = [
      route6('wlan0', { metric: '00000a00' }),
      route6('eth0'),
      route6('net', { to: 'fd000000000000000000000000000000 40' }),
      route6('lo', { flags: '00200200' }),
      route6('down', { flags: '00000002' }),
      'nonsense\n',
    ].join('');
    assert.deepEqual(defaultRouteInterfaces6(text), ['eth0', 'wlan0']);
    assert.deepEqual(defaultRouteInterfaces6(''), []);
  });

  test('give the first global IPv6 address', () => {
    const interfaces = {
      docker0: [ipv6('fd00:17::1')],
      eth0: [ipv4('192.0.2.10'), ipv6('fe80::1'), ipv6('2001:db8::1')],
    };
    assert.deepEqual(chooseHostAddress(route6('eth0'), interfaces, 'IPv6'), {
      address: '2001:db8::1',
      interfaceName: 'eth0',
      isFallback: false,
    });
    assert.equal(chooseHostAddress(route6('eth0'), { eth0: [ipv6('fe80::1')] }, 'IPv6'), undefined);
  });
});

describe('the host address', () => {
  const lo = [{ ...ipv4('127.0.0.1'), internal: true }, ipv6('::1')];

  test('is the first global IPv4 address of the interface with the best default route', () => {
    const interfaces = {
      lo,
      docker0: [ipv4('172.17.0.1')],
      eth0: [ipv6('2001:db8::1'), ipv4('169.254.1.1'), ipv4('192.0.2.10'), ipv4('192.0.2.11')],
      wlan0: [ipv4('198.51.100.1')],
    };
    assert.deepEqual(
      chooseHostAddress(table({ name: 'wlan0', metric: 600 }, { name: 'eth0', metric: 5 }), interfaces),
      {
        address: '192.0.2.10',
        interfaceName: 'eth0',
        isFallback: false,
      },
    );
  });

  test('is the next route’s where the best one’s interface has none', () => {
    const interfaces = { lo, docker0: [ipv4('172.17.0.1')], eth0: [ipv6('2001:db8::1')], eth1: [ipv4('192.0.2.10')] };
    const chosen = chooseHostAddress(table({ name: 'eth0' }, { name: 'gone' }, { name: 'eth1' }), interfaces);
    assert.deepEqual(chosen, { address: '192.0.2.10', interfaceName: 'eth1', isFallback: false });
  });

  test('without a default route is any but loopback and link-local, and marked as a fallback', () => {
    const interfaces = { lo, eth0: [ipv4('169.254.1.1')], eth1: [ipv4('192.0.2.10')] };
    assert.deepEqual(chooseHostAddress(table(), interfaces), {
      address: '192.0.2.10',
      interfaceName: 'eth1',
      isFallback: true,
    });
  });

  test('may be of 240.0.0.0/4, which networks use that have run out of others', () => {
    const chosen = chooseHostAddress(table({ name: 'eth0' }), { lo, eth0: [ipv4('240.0.0.10')] });
    assert.equal(chosen?.address, '240.0.0.10');
  });

  test('is marked as a fallback too where the default route’s interface has no address', () => {
    const chosen = chooseHostAddress(table({ name: 'eth0' }), { lo, eth1: [ipv4('192.0.2.10')] });
    assert.equal(chosen?.isFallback, true);
  });

  test('does not exist where there is only loopback', () => {
    assert.equal(chooseHostAddress(table({ name: 'constructor' }), { lo }), undefined);
    assert.equal(chooseHostAddress('', {}), undefined);
  });

  test('of this machine is one of its local addresses', () => {
    const local = localAddresses('IPv4');
    assert.ok(local.includes('127.0.0.1' as (typeof local)[number]) || local.length === 0, String(local));
    const chosen = hostAddress('IPv4');
    assert.ok(chosen === undefined || local.includes(chosen.address));
  });
});
