import '../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { RouteEvents } from '../../src/sys/route-events.ts';

const ip = (line: string) => execFileSync('ip', line.split(' '));

test('addresses, links and default routes that come and go are heard of, routes to pods are not', () => {
  ip('link add eth0 type veth peer name eth1');
  // A link-local address would be told of once more when it turns out to be unique, a second after it has come.
  for (const name of ['eth0', 'eth1']) ip(`link set ${name} addrgenmode none`);
  const events = new RouteEvents();
  assert.equal(events.take(), false);
  for (const [line, isHeard] of [
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
    assert.equal(events.take(), isHeard, line);
  }
});
