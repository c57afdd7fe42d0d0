import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ClientFacts, KeptAddresses } from '../../src/model/client-address.ts';
import { canSee, isKeptTowards, KnownClients } from '../../src/services/known-clients.ts';
import { address, cidr } from '../support/model.ts';

const POD = address('10.244.1.7');
const POD_V6 = address('fd00:244::7');
const OUTSIDE = address('203.0.113.9');
const OUTSIDE_V6 = address('2001:db8::9');
const NODE = address('10.244.1.1');
const CLUSTER_IP = address('10.96.0.10');

const FACTS: ClientFacts = { families: ['IPv4', 'IPv6'], nodeAddresses: [NODE] };
const podCidrs = ['10.244.0.0/23', 'fd00:244::/63'].map((each) => cidr(each));

const kept = (pods: KeptAddresses['pods'], others: KeptAddresses['others']): KeptAddresses => {
  return { pods, others, clusterIPs: [CLUSTER_IP] };
};

describe('which clients endpoints see', () => {
  test('without a word about pods, every client counts as one', () => {
    const clients = new KnownClients(FACTS);
    for (const client of [POD, POD_V6, OUTSIDE]) assert.equal(clients.keptFor(kept('all', 'none'), client), 'all');
  });

  test('pods are told from others by their addresses, to the last bit of the prefix', () => {
    const clients = new KnownClients({ ...FACTS, podCidrs });
    const isPod = (text: string) => clients.keptFor(kept('all', 'none'), address(text)) === 'all';
    for (const pod of ['10.244.0.0', '10.244.1.255', 'fd00:244::', 'fd00:244:0:1:ffff::']) assert.ok(isPod(pod), pod);
    for (const other of ['10.244.2.0', '10.243.255.255', 'fd00:244:0:2::', OUTSIDE, OUTSIDE_V6]) {
      assert.ok(!isPod(other), other);
    }
    assert.equal(clients.keptFor(kept('none', 'external'), OUTSIDE), 'external');
    assert.equal(clients.keptFor(kept('none', 'external'), POD), 'none');
  });

  test("the node's own programs never, whatever the pods' network", () => {
    const clients = new KnownClients({ ...FACTS, podCidrs });
    for (const own of [NODE, address('127.0.0.1'), address('127.3.2.1'), address('::1')]) {
      assert.equal(clients.keptFor(kept('all', 'all'), own), 'none');
    }
  });

  test('nobody whose address of fe80::/10 means nothing without its link', () => {
    const clients = new KnownClients(FACTS);
    for (const client of ['fe80::7', 'febf::7']) {
      assert.equal(clients.keptFor(kept('all', 'all'), address(client)), 'none');
    }
  });

  test('nobody whose packets policy routing sends another way', () => {
    const routedApart = ['10.244.1.7/32', '10.244.8.0/24', 'fd00:244::7/128'].map((each) => cidr(each));
    const clients = new KnownClients({ ...FACTS, routedApart });
    const isKept = (text: string) => clients.keptFor(kept('all', 'all'), address(text)) === 'all';
    for (const apart of [POD, POD_V6, '10.244.8.200']) assert.ok(!isKept(apart), apart);
    for (const other of ['10.244.1.8', '10.244.9.1', 'fd00:244::8']) assert.ok(isKept(other), other);
  });

  test('nobody of a family in which the kernel cannot', () => {
    const clients = new KnownClients({ ...FACTS, families: ['IPv6'] });
    assert.equal(clients.keptFor(kept('all', 'all'), POD), 'none');
    assert.equal(clients.keptFor(kept('all', 'all'), POD_V6), 'all');
  });
});

test('a destination is internal if it is a cluster IP of the Service, else external', () => {
  const set = kept('all', 'all');
  const towards = (destination: typeof POD) =>
    (['all', 'internal', 'external', 'none'] as const).filter((each) => isKeptTowards(destination, each, set));
  assert.deepEqual(towards(CLUSTER_IP), ['all', 'internal']);
  assert.deepEqual(towards(NODE), ['all', 'external']);
});

test('an endpoint that is the client, or at a loopback address, cannot see it', () => {
  assert.equal(canSee(POD, OUTSIDE), true);
  assert.equal(canSee(POD, POD), false);
  assert.equal(canSee(address('127.0.0.1'), POD), false);
  assert.equal(canSee(address('::1'), POD_V6), false);
});
