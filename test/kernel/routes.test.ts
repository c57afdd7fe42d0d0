import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { defaultRouteInterfaces, routeInterface } from '../../src/kernel/routes.ts';
import { address } from '../support/model.ts';

const HEADER = 'Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT';

/** A line of `/proc/net/route`, padded as the kernel pads it. */
function route4(name: string, { to = '00000000', mask = '00000000', metric = 0, flags = '0003' } = {}): string {
  return `${[name, to, '0101A8C0', flags, 0, 0, metric, mask, 0, 0, 0].join('\t').padEnd(127)}\n`;
}

const DEFAULT_IPV6 = `${'0'.repeat(32)} 00`;

/** A line of `/proc/net/ipv6_route`. */
function route6(name: string, { to = DEFAULT_IPV6, metric = '00000400', flags = '00000003' } = {}): string {
  const gateway = 'fd000000000000000000000000000001';
  return `${to} ${'0'.repeat(32)} 00 ${gateway} ${metric} 00000002 00000000 ${flags} ${name.padStart(8)}\n`;
}

const table = (...routes: readonly string[]) => `${HEADER}\n${routes.join('')}`;

describe('the interfaces of default routes', () => {
  for (const [what, family, text, expected] of [
    [
      'are sorted by metric, then as in the file',
      'IPv4',
      table(route4('wlan0', { metric: 600 }), route4('eth1', { metric: 100 }), route4('eth0', { metric: 100 })),
      ['eth1', 'eth0', 'wlan0'],
    ],
    [
      'are those whose route is for everything, up, and no rejection',
      'IPv4',
      table(
        route4('net', { to: '0001A8C0', mask: '00FFFFFF' }),
        route4('vpn', { mask: '00000080' }),
        route4('down', { flags: '0002' }),
        route4('lo', { flags: '0201' }),
        route4('ppp0', { flags: '0001' }),
      ),
      ['ppp0'],
    ],
    [
      'of IPv6: the same',
      'IPv6',
      [
        route6('wlan0', { metric: '00000a00' }),
        route6('eth0'),
        route6('net', { to: 'fd000000000000000000000000000000 40' }),
        route6('lo', { flags: '00200200' }),
        route6('down', { flags: '00000002' }),
        'nonsense\n',
      ].join(''),
      ['eth0', 'wlan0'],
    ],
    ['of IPv6: none in an empty file', 'IPv6', '', []],
    ...['', table(), '\n\n', `${table()}what is this\n`, `${table()}eth0\t00000000`].map(
      (text) => [`none in ${JSON.stringify(text)}`, 'IPv4', text, []] as const,
    ),
  ] as const) {
    test(what, () => assert.deepEqual(defaultRouteInterfaces(text, family), expected));
  }
});

const IPV4 = table(
  route4('eth0', { metric: 100 }),
  route4('eth1', { metric: 50 }),
  route4('eth0', { to: '0032A8C0', mask: '00FFFFFF' }),
  route4('cbr0', { to: '0001F40A', mask: '00FFFFFF' }),
  route4('cali1', { to: '0701F40A', mask: 'FFFFFFFF' }),
  route4('lo', { to: '0002F40A', mask: '00FFFFFF', flags: '0201' }),
);
const IPV6 = [
  route6('eth0', { to: 'fd000000000000000000000000000000 40' }),
  route6('cali1', { to: 'fd000000000000000000000000000007 80' }),
  route6('eth1'),
].join('');

for (const [text, to, expected] of [
  [IPV4, '192.168.50.1', 'eth0'],
  [IPV4, '10.244.1.9', 'cbr0'],
  [IPV4, '10.244.1.7', 'cali1'],
  [IPV4, '10.244.2.1', 'eth1'],
  [IPV4, '198.51.100.1', 'eth1'],
  [IPV6, 'fd00::9', 'eth0'],
  [IPV6, 'fd00::7', 'cali1'],
  [IPV6, '2001:db8::1', 'eth1'],
  ['', '192.168.50.1', undefined],
] as const) {
  test(`packets to ${to} leave by ${expected}`, () => assert.equal(routeInterface(text, address(to)), expected));
}
