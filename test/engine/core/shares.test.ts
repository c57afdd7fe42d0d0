import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createShares, DESCRIPTORS_OF, Share, ShareMemory, shareTable } from '../../../src/engine/core/shares.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';

const LIMIT = 2000;
/** Of these 250 are not for clients, and 250 are the reserve. */
const TOTAL = 1750;

function sharesOf({
  taken = shareTable(1),
  row = 0,
  loop = { turns: 0 },
  descriptorLimit = LIMIT,
  udpMaxFlows = 100,
  udpMaxFlowsPerService = 50,
} = {}) {
  return createShares({ taken, row, loop, descriptorLimit, options: { udpMaxFlows, udpMaxFlowsPerService } });
}

/** A Service port of another namespace each time. */
function newShare(): Share {
  return new Share(shareTable(1), 0);
}

/** Tenants who take, in turn, as many descriptors as they may. What each has in the end. */
function fill(...tenants: readonly ProxiedProtocol[]) {
  const shares = sharesOf();
  const held = tenants.map(() => 0);
  const owners = tenants.map(() => newShare());
  for (let took = true; took; ) {
    took = false;
    for (const [index, protocol] of tenants.entries()) {
      const limited = protocol === 'TCP' ? shares.descriptors : shares.flowDescriptors;
      if (!limited.mayTake(owners[index]!)) continue;
      shares.descriptors.take(DESCRIPTORS_OF[protocol], owners[index]);
      held[index]! += DESCRIPTORS_OF[protocol];
      took = true;
    }
  }
  return { held, shares };
}

test('an eighth of few descriptors, or 256 of many, is for the rest of the program, and as much for the reserve', () => {
  for (const [limit, left] of [
    [LIMIT, 1500],
    [1 << 20, (1 << 20) - 512],
  ] as const) {
    assert.equal(sharesOf({ descriptorLimit: limit }).descriptors.left, left);
  }
  const unlimited = sharesOf({ descriptorLimit: Number.POSITIVE_INFINITY }).descriptors;
  const large = newShare();
  unlimited.take(1e9, large);
  assert.ok(unlimited.mayTake(large));
});

test('one namespace alone gets four fifths of what is not kept, two get four ninths each', () => {
  assert.deepEqual(fill('TCP').held, [1200]);
  assert.deepEqual(fill('TCP', 'TCP').held, [668, 666]);
  assert.deepEqual(fill('UDP').held, [1200]);
});

test('after any number of large namespaces, of either protocol, a new one finds room', () => {
  const { shares } = fill('TCP', 'UDP', 'TCP', 'UDP', 'TCP', 'TCP', 'UDP', 'TCP');
  const other = newShare();
  assert.ok(shares.descriptors.mayTake(other), `${shares.descriptors.left} are left`);
  for (let flows = 0; flows < 50; flows++) {
    assert.ok(shares.flowDescriptors.mayTake(other), `${flows}`);
    shares.descriptors.take(1, other);
  }
});

test('the reserve is for flows of namespaces that have few, down to the last descriptor', () => {
  const { descriptors, flowDescriptors } = sharesOf();
  descriptors.take(TOTAL - 2);
  const [none, one] = [newShare(), newShare()];
  assert.deepEqual([descriptors.mayTake(none), flowDescriptors.mayTake(none)], [false, true]);
  descriptors.take(1, one);
  assert.deepEqual([flowDescriptors.mayTake(one), flowDescriptors.mayTake(none)], [false, true]);
  descriptors.take(1);
  assert.equal(flowDescriptors.mayTake(none), false);
});

test('pipes find descriptors scarce while less than an eighth is free', () => {
  const { descriptors } = sharesOf();
  descriptors.take(TOTAL * (7 / 8));
  assert.equal(descriptors.isScarce, false);
  descriptors.take(1);
  assert.equal(descriptors.isScarce, true);
});

test('what a namespace has in other threads is not looked at while more than half is free', () => {
  const { descriptors } = sharesOf();
  const share = newShare();
  share.others = () => {
    throw new Error('looked at');
  };
  descriptors.take(TOTAL - 1126);
  assert.ok(descriptors.mayTake(share));
  descriptors.take(1);
  assert.throws(() => descriptors.mayTake(share), /looked at/);
});

test('what other threads have is added up once a turn for descriptors, and each time for flows', () => {
  const taken = shareTable(2);
  const loop = { turns: 7 };
  const here = sharesOf({ taken, loop });
  const there = sharesOf({ taken, row: 1 });
  const share = newShare();
  assert.deepEqual([here.descriptors.mayTake(share), here.flows.mayTake(share)], [true, true]);
  there.descriptors.take(TOTAL);
  there.flows.take(100);
  assert.deepEqual([here.descriptors.mayTake(share), here.flows.limitOf(share)], [true, 'total']);
  loop.turns++;
  assert.equal(here.descriptors.mayTake(share), false);
});

test('a new flow is kept out by the limit of its port, of all, or of its namespace', () => {
  const limit = (ofPort: number, ofNamespace: number, all: number) => {
    const { flows } = sharesOf();
    const table = shareTable(1);
    const [port, another] = [new Share(table, 0), new Share(table, 0)];
    flows.take(ofPort, port);
    flows.take(ofNamespace - ofPort, another);
    flows.take(all - ofNamespace);
    return flows.limitOf(port);
  };
  assert.equal(limit(49, 79, 80), undefined);
  assert.equal(limit(50, 50, 50), 'per-service');
  assert.equal(limit(0, 0, 100), 'total');
  assert.equal(limit(40, 80, 80), 'per-namespace');
  assert.equal(limit(0, 0, 80), undefined);
  assert.equal(limit(0, 0, 99), undefined);
  assert.equal(limit(4, 4, 99), 'per-namespace');
});

const CHUNK = 64 << 10;

test('a namespace whose endpoints never answer leaves room for datagrams of others, and gives back what it took', () => {
  const { datagramBytes } = sharesOf();
  const [hogs, others] = [shareTable(1), shareTable(1)];
  for (let round = 1; round <= 2; round++) {
    const ports = Array.from({ length: 6 }, () => new Share(hogs, 0));
    const takes = ports.flatMap((port) => Array.from({ length: 64 }, () => datagramBytes.tryTake(CHUNK, port) && port));
    const taken = takes.filter((port) => port !== false);
    const ofFirst = taken.filter((port) => port === ports[0]).length;
    assert.equal(ofFirst * CHUNK, 1 << 20, 'no port has more');
    assert.ok(taken.length * CHUNK >= 3 << 20 && taken.length * CHUNK < 3.5 * (1 << 20), `${taken.length} chunks`);
    const other = new Share(others, 0);
    for (let i = 0; i < 8; i++) assert.ok(datagramBytes.tryTake(CHUNK, other));
    datagramBytes.give(8 * CHUNK, other);
    for (const port of taken) datagramBytes.give(CHUNK, port);
    assert.ok(new Int32Array(hogs).every((amount) => amount === 0));
  }
});

test('bytes are limited in each thread by itself, descriptors and flows in all', () => {
  const memory = new ShareMemory(2);
  const table = memory.join('a');
  const thread = (row: number) => ({ shares: sharesOf({ taken: memory.all, row }), share: new Share(table, row) });
  const [here, there] = [thread(0), thread(1)];
  there.shares.stalledBytes.take(32 << 20, there.share);
  there.shares.flows.take(80, there.share);
  assert.equal(there.shares.stalledBytes.mayTake(there.share), false);
  here.shares.stalledBytes.take(26 << 20);
  assert.equal(here.shares.stalledBytes.mayTake(here.share), true, 'others have most of it here, but this has none');
  assert.equal(here.shares.flows.limitOf(here.share), 'per-namespace');
  memory.clear(1);
  assert.equal(here.shares.flows.limitOf(here.share), undefined, 'the other thread has died');
  const next = thread(1);
  assert.equal(next.shares.stalledBytes.mayTake(next.share), true, 'another one begins with nothing');
});

test('all Service ports and threads of a namespace count together', () => {
  const memory = new ShareMemory(2);
  const [one, two] = [memory.join('a'), memory.join('a')];
  assert.equal(one, two);
  assert.notEqual(one, memory.join('b'));
});

test('a namespace is forgotten when it has neither a Service port nor a connection', () => {
  const memory = new ShareMemory(1);
  const first = memory.join('a');
  const { descriptors } = sharesOf({ taken: memory.all });
  const share = new Share(first, 0);
  descriptors.take(2, share);
  memory.leave('a');
  memory.join('b');
  assert.equal(memory.join('a'), first, 'its connections are still open');
  descriptors.give(2, share);
  assert.equal(memory.join('a'), first);
  memory.leave('a');
  memory.join('c');
  assert.equal(memory.join('a'), first, 'it has a Service port');
  for (let i = 0; i < 2; i++) memory.leave('a');
  memory.join('d');
  assert.notEqual(memory.join('a'), first);
});
