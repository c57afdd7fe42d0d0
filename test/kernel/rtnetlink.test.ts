import '../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { RouteEvents, routedApart } from '../../src/kernel/rtnetlink.ts';
import { waitFor } from '../netns/wait.ts';

const ip = (line: string) => execFileSync('ip', line.split(' '));

test('changes of addresses, links and default routes are reported, changes of routes to pods are not', async () => {
  ip('link add eth0 type veth peer name eth1');
  // A link-local address would be reported again when it turns out to be unique, a second later.
  for (const name of ['eth0', 'eth1']) ip(`link set ${name} addrgenmode none`);
  const events = new RouteEvents();
  assert.equal(events.take(), false);
  for (const [line, isReported] of [
    ['link set eth0 up', true],
    ['link set eth1 up', true],
    ['addr add 192.168.50.10/24 dev eth0', true],
    ['-6 addr add fd00:50::10/64 dev eth0 nodad', true],
    ['route add 10.244.1.7/32 dev eth0', false],
    ['-6 route add fd00:244::7/128 dev eth0', false],
    ['route add default via 192.168.50.1', true],
    ['-6 route add default via fd00:50::1', true],
    ['addr del 192.168.50.10/24 dev eth0', true],
    ['link set eth0 down', true],
  ] as const) {
    events.take();
    ip(line);
    // The kernel may report an address of IPv6 a little later.
    if (isReported) await waitFor(`a report of ${line}`, () => events.take());
    else assert.equal(events.take(), false, line);
  }
});

test('the sources that rules of policy routing name are found, whatever else a rule has', () => {
  for (const line of [
    'rule add from 10.244.1.7 table 100',
    'rule add to 10.0.0.0/8 table 100',
    'rule add from 10.245.0.0/16 to 10.0.0.0/8 iif lo table 100',
    '-6 rule add from fd00:244::/64 table 100',
  ])
    ip(line);
  assert.deepEqual(
    routedApart('IPv4').toSorted((a, b) => a.prefixLength - b.prefixLength),
    [
      { network: '10.245.0.0', prefixLength: 16 },
      { network: '10.244.1.7', prefixLength: 32 },
    ],
  );
  assert.deepEqual(routedApart('IPv6'), [{ network: 'fd00:244::', prefixLength: 64 }]);
});
