import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { machine } from '../../src/kernel/machine.ts';
import { address } from '../rules/fixtures.ts';

test('all of 127.0.0.0/8 is this machine, which sends there from the address that an interface has', () => {
  const [loopback] = networkInterfaces()['lo']?.filter(({ family }) => family === 'IPv4') ?? [];
  for (const text of ['127.0.0.2', '127.255.255.254']) {
    assert.ok(machine.isLocal(address(text)));
    const { source, interfaceName } = machine.departureTo(address(text));
    assert.deepEqual([source, interfaceName], [loopback?.address, 'lo']);
  }
});

test('to an address of its own, the machine sends from that; to others, by a route', () => {
  const own = Object.values(networkInterfaces())
    .flatMap((infos) => infos ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal);
  if (own !== undefined) {
    assert.deepEqual(machine.departureTo(address(own.address)), { source: own.address, interfaceName: 'lo' });
  }
  const elsewhere = address('192.0.2.1');
  assert.equal(machine.isLocal(elsewhere), false);
  assert.equal(machine.departureTo(elsewhere).interfaceName, machine.interfaceTowards(elsewhere));
});
