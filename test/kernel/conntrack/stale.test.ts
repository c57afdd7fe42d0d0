import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commonPortOf, familiesOf, missed, redirectedTo, staleness } from '../../../src/kernel/conntrack/stale.ts';
import type { Address } from '../../../src/model/address.ts';
import type { UdpFlows } from '../../../src/model/conntrack.ts';

const VIP = '10.96.0.10' as Address;
const NODE = '192.168.50.10' as Address;
const FOREIGN = '203.0.113.9' as Address;
const LOCAL = new Set([NODE]);

/** An entry to `destination`:`port` that NAT redirects to `localPort`, or that has no NAT. */
function isStale(flows: readonly UdpFlows[], destination: string, port: number, localPort?: number): boolean {
  return staleness(
    flows,
    LOCAL,
  )({
    destination: () => destination as Address,
    destinationPort: port,
    replyPort: localPort ?? port,
    replySource: () => NODE,
    isRedirected: localPort !== undefined,
    isOpening: false,
    isEstablished: false,
  });
}

test('entries to the destination are stale unless NAT redirects them to the port to keep', () => {
  const flows = [{ destination: VIP, port: 53, keepLocalPort: 4000 }];
  assert.equal(isStale(flows, VIP, 53), true);
  assert.equal(isStale(flows, VIP, 53, 4001), true);
  assert.equal(isStale(flows, VIP, 53, 4000), false);
});

test('an entry without NAT is stale even if the Service port equals the local port', () => {
  assert.equal(isStale([{ destination: VIP, port: 53, keepLocalPort: 53 }], VIP, 53), true);
});

test('entries of other ports and other destinations are never stale', () => {
  const flows = [{ destination: VIP, port: 53 }];
  assert.equal(isStale(flows, VIP, 54), false);
  assert.equal(isStale(flows, FOREIGN, 53), false);
  assert.equal(isStale(flows, NODE, 53), false);
});

test('entries of a NodePort are stale on every address of the node, and on no other', () => {
  const flows = [{ port: 30053, keepLocalPort: 4000 }];
  assert.equal(isStale(flows, NODE, 30053), true);
  assert.equal(isStale(flows, '127.0.0.1', 30053), true);
  assert.equal(isStale(flows, '127.0.0.2', 30053), true);
  assert.equal(isStale(flows, NODE, 30053, 4000), false);
  assert.equal(isStale(flows, FOREIGN, 30053), false);
});

test('an entry that one flow keeps is not stale, whatever other flows of the destination say', () => {
  const went = { destination: VIP, port: 53 };
  const came = { destination: VIP, port: 53, keepLocalPort: 4000 };
  for (const flows of [
    [went, came],
    [came, went],
  ]) {
    assert.equal(isStale(flows, VIP, 53, 4000), false);
    assert.equal(isStale(flows, VIP, 53, 4001), true);
  }
  // An external IP that is an address of the node, and a NodePort of the same number.
  const both = [
    { port: 53, keepLocalPort: 4000 },
    { destination: NODE, port: 53 },
  ];
  assert.equal(isStale(both, NODE, 53, 4000), false);
});

test('entries that NAT redirects to a local port are found by the port, on addresses of the node only', () => {
  const leads = redirectedTo(new Set([4000]), LOCAL);
  const entry = {
    destination: () => VIP,
    destinationPort: 53,
    replyPort: 4000,
    isRedirected: true,
    isOpening: false,
    isEstablished: false,
  };
  assert.equal(leads({ ...entry, replySource: () => NODE }), true);
  assert.equal(leads({ ...entry, replySource: () => '127.0.0.1' as Address }), true);
  assert.equal(leads({ ...entry, replySource: () => FOREIGN }), false, 'the port of another machine');
  assert.equal(leads({ ...entry, replySource: () => NODE, replyPort: 4001 }), false);
  assert.equal(leads({ ...entry, replySource: () => NODE, isRedirected: false }), false, 'a program of the node');
});

test('connections that NAT has missed are found by their destinations, until somebody answers', () => {
  const passedBy = missed([{ destination: VIP, port: 80 }, { port: 30_080 }], LOCAL);
  const entry = {
    destination: () => VIP,
    destinationPort: 80,
    replyPort: 80,
    replySource: () => VIP,
    isRedirected: false,
    isOpening: true,
    isEstablished: false,
  };
  assert.equal(passedBy(entry), true);
  assert.equal(passedBy({ ...entry, destination: () => NODE, destinationPort: 30_080 }), true);
  assert.equal(passedBy({ ...entry, isOpening: false }), false, 'it is answered');
  assert.equal(passedBy({ ...entry, isRedirected: true }), false);
  assert.equal(passedBy({ ...entry, destinationPort: 81 }), false);
  assert.equal(passedBy({ ...entry, destination: () => FOREIGN }), false);
});

test('only families that the entries can have are searched', () => {
  assert.deepEqual([...familiesOf([])], []);
  assert.deepEqual([...familiesOf([{ destination: VIP, port: 53 }])], ['IPv4']);
  assert.deepEqual([...familiesOf([{ destination: 'fd00::1' as Address, port: 53 }])], ['IPv6']);
  assert.deepEqual([...familiesOf([{ port: 30053 }])], ['IPv4', 'IPv6']);
  assert.deepEqual([...familiesOf([{ family: 'IPv6', port: 30053 }])], ['IPv6']);
});

test('a port that all flows have in common is found', () => {
  const one = { destination: VIP, port: 53, keepLocalPort: 4000 };
  assert.equal(commonPortOf([one, { destination: FOREIGN, port: 53 }]), 53);
  assert.equal(commonPortOf([one, { destination: VIP, port: 54 }]), undefined);
  assert.equal(commonPortOf([]), undefined);
});
