import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { HostAddress } from '../../src/kernel/host-address.ts';
import { NodeAddress } from '../../src/kernel/node-address.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { address as ip } from '../rules/fixtures.ts';

const EXPECTED = { isExpected: true };

function harness() {
  const log = new RecordingLog();
  const machine = {
    found: { address: ip('192.168.50.10'), interfaceName: 'eth0', isFallback: false } as HostAddress | undefined,
    local: [ip('127.0.0.1'), ip('192.168.50.10'), ip('10.0.0.5')],
  };
  const node = new NodeAddress({
    family: 'IPv4',
    log,
    machine: { hostAddress: () => machine.found, localAddresses: () => machine.local },
  });
  const warnings = () => log.of('warn').map((line) => line.message);
  return { node, machine, warnings };
}

describe('the address that rules lead to', () => {
  test('is that of the default route until the Node object says otherwise', () => {
    const h = harness();
    assert.equal(h.node.current(), '192.168.50.10');
    h.node.prefer([ip('fd00::5'), ip('10.0.0.5')], EXPECTED);
    assert.equal(h.node.current(), '10.0.0.5');
    assert.deepEqual(h.warnings(), []);
  });

  test('is never one that this machine does not have, and that is told once', () => {
    const h = harness();
    h.node.prefer([ip('203.0.113.9')], EXPECTED);
    for (let i = 0; i < 3; i++) assert.equal(h.node.current(), '192.168.50.10');
    assert.equal(h.warnings().length, 1);
    assert.match(h.warnings()[0] ?? '', /no address of its Node object/);
    h.machine.local = [...h.machine.local, ip('203.0.113.9')];
    assert.equal(h.node.current(), '203.0.113.9');
  });

  test('falls back when the Node object names none, with a warning where that is not meant so', () => {
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

  test('follows the Node object', () => {
    const h = harness();
    h.node.prefer([ip('10.0.0.5')], EXPECTED);
    assert.equal(h.node.current(), '10.0.0.5');
    h.node.prefer([ip('192.168.50.10')], EXPECTED);
    assert.equal(h.node.current(), '192.168.50.10');
  });

  test('warns when no default route leads to it', () => {
    const h = harness();
    h.machine.found = { address: ip('10.0.0.5'), interfaceName: 'cbr0', isFallback: true };
    for (let i = 0; i < 3; i++) assert.equal(h.node.current(), '10.0.0.5');
    assert.equal(h.warnings().length, 1);
  });

  test('follows the machine', () => {
    const h = harness();
    h.node.current();
    h.machine.found = undefined;
    assert.equal(h.node.current(), undefined);
  });
});
