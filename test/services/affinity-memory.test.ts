import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AffinityMemory } from '../../src/services/affinity-memory.ts';
import { ClientAffinity } from '../../src/services/client-affinity.ts';
import { endpoint } from './backends.ts';

const A = endpoint(1);
/** So many that the lower bound of a thread plays no part. */
const THREADS = 1_000_000;

function harness(maxClients: number) {
  const memory = new AffinityMemory(maxClients, THREADS);
  let forgotten = 0;
  let nowMs = 0;
  const port = (namespace: string) => {
    const onForgotten = (clients: number) => {
      forgotten += clients;
    };
    const affinity = new ClientAffinity(100_000, { maxClients, memory, namespace, onForgotten });
    return {
      affinity,
      fill: (count: number, name = 'c') => {
        for (let i = 0; i < count; i++) affinity.set(`${name}${i}`, A, ++nowMs);
      },
    };
  };
  const advance = (ms: number) => {
    nowMs += ms;
  };
  return { memory, port, advance, forgotten: () => forgotten };
}

test('the namespace with the most clients gives up its oldest, from each of its Service ports; others lose none', () => {
  const h = harness(1_000);
  const hogs = Array.from({ length: 3 }, () => h.port('hog'));
  const small = h.port('small');
  small.fill(100);
  for (const hog of hogs) hog.fill(300);
  assert.equal(h.forgotten(), 0);
  for (let round = 0; round < 10; round++) for (const hog of hogs) hog.fill(300, `r${round}-`);
  assert.equal(small.affinity.size, 100);
  const total = hogs.reduce((sum, { affinity }) => sum + affinity.size, 100);
  assert.ok(total > 900 && total <= 1_000, `${total} in all`);
  assert.equal(h.forgotten(), 900 + 9_000 - (total - 100));
  assert.equal(hogs[0]?.affinity.get('r9-299', 10_000), A, 'the newest stay');

  small.fill(300, 'more');
  assert.equal(small.affinity.size, 400, 'a smaller one gets room');
});

test('clients whose time is over do not count as forgotten', () => {
  const h = harness(100);
  const hog = h.port('hog');
  hog.fill(100);
  h.advance(200_000);
  h.port('other').fill(50);
  assert.equal(h.forgotten(), 0);
  assert.ok(hog.affinity.size <= 50);
});

test('what is forgotten or closed makes room', () => {
  const h = harness(100);
  const [one, two] = [h.port('a'), h.port('b')];
  for (let round = 0; round < 10; round++) {
    one.fill(90);
    one.affinity.close();
    assert.equal(one.affinity.size, 0);
    two.fill(90);
    for (let i = 0; i < 90; i++) two.affinity.forget(`c${i}`, A);
  }
  assert.equal(h.forgotten(), 0);
});

test('a Service port that remembers nobody is not asked to forget', () => {
  const memory = new AffinityMemory(1, THREADS);
  const part = { namespace: 'a', size: 1, giveUp: () => assert.fail('it has nobody') };
  memory.added(part, 0);
  part.size = 0;
  memory.removed(part, 1);
  const given: number[] = [];
  const other = { namespace: 'a', size: 2, giveUp: (clients: number) => given.push(clients) };
  memory.added(other, 0);
  memory.added(other, 0);
  assert.deepEqual(given, [1]);
});

test('a node with few threads remembers as many in all, and each thread at least those of one Service port', () => {
  const bound = (maxClientsPerPort: number, threads: number) => {
    let count = 0;
    const memory = new AffinityMemory(maxClientsPerPort, threads);
    const part = {
      ...{ namespace: 'a', size: 0 },
      giveUp: () => {
        count = part.size;
      },
    };
    while (count === 0) {
      part.size++;
      memory.added(part, 0);
    }
    return count - 1;
  };
  assert.deepEqual(
    [bound(65_536, 1), bound(65_536, 2), bound(65_536, 32), bound(300_000, 2)],
    [262_144, 131_072, 65_536, 300_000],
  );
});
