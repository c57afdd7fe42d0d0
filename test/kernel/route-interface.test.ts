import assert from 'node:assert/strict';
import { test } from 'node:test';
import { routeInterface } from '../../src/kernel/route-interface.ts';
import { address } from '../rules/fixtures.ts';

const IPV4 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0132A8C0	0003	0	0	100	00000000	0	0	0
eth1	00000000	0132A8C0	0003	0	0	50	00000000	0	0	0
eth0	0032A8C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
cbr0	0001F40A	00000000	0001	0	0	0	00FFFFFF	0	0	0
cali1	0701F40A	00000000	0005	0	0	0	FFFFFFFF	0	0	0
lo	0002F40A	00000000	0201	0	0	0	00FFFFFF	0	0	0
`;

const IPV6 = `fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
fd000000000000000000000000000007 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     cali1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth1
`;

for (const [text, from, expected] of [
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
  test(`packets from ${from} come by ${expected}`, () => assert.equal(routeInterface(text, address(from)), expected));
}
