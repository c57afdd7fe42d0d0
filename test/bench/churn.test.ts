import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Churn } from '../../bench/scale/churn.ts';
import type { ServiceStore } from '../../bench/scale/service-store.ts';
import type { ScaleService } from '../../bench/scale/services.ts';
import { seededRandom } from '../support/seeded-random.ts';

/** Takes its time, as a server does, and refuses two changes of one Service at once. */
class MemoryStore implements ServiceStore {
  readonly flags = [];
  readonly services = new Map<string, ScaleService>();
  readonly counts = { created: 0, changed: 0, deleted: 0 };
  readonly #busy = new Set<string>();

  create(service: ScaleService): Promise<void> {
    return this.#write(service, () => {
      assert.ok(!this.services.has(service.name), `${service.name} exists`);
      this.services.set(service.name, service);
      this.counts.created++;
    });
  }

  setEndpoints(service: ScaleService): Promise<void> {
    return this.#write(service, () => {
      assert.ok(this.services.has(service.name), `${service.name} does not exist`);
      this.services.set(service.name, service);
      this.counts.changed++;
    });
  }

  replace(service: ScaleService): Promise<void> {
    return this.setEndpoints(service);
  }

  delete(service: ScaleService): Promise<void> {
    return this.#write(service, () => {
      assert.ok(this.services.delete(service.name), `${service.name} does not exist`);
      this.counts.deleted++;
    });
  }

  async #write({ name }: ScaleService, write: () => void): Promise<void> {
    assert.ok(!this.#busy.has(name), `two changes of ${name} at once`);
    this.#busy.add(name);
    await new Promise((resolve) => setImmediate(resolve));
    write();
    this.#busy.delete(name);
  }
}

describe('random changes of Services', () => {
  test('it knows what the store holds after thousands of changes, and their number stays about the same', async () => {
    const store = new MemoryStore();
    const churn = new Churn(store, seededRandom(7));
    await churn.fill(500);
    assert.deepEqual(store.counts, { created: 500, changed: 0, deleted: 0 });
    await churn.rush(5_000);
    const { created, changed, deleted } = store.counts;
    assert.equal(created + changed + deleted, 5_500);
    assert.ok(created > 800 && deleted > 300 && changed > 3_500, JSON.stringify(store.counts));
    assert.deepEqual(new Map(churn.services.map((service) => [service.name, service])), store.services);
    assert.ok(Math.abs(churn.services.length - 500) < 150, `${churn.services.length}`);
  });

  test('every Service has an address and NodePort of its own and two endpoints', async () => {
    const store = new MemoryStore();
    const churn = new Churn(store, seededRandom(7));
    await churn.fill(12_000);
    const services = [...store.services.values()];
    assert.equal(new Set(services.map(({ clusterIP }) => clusterIP)).size, 12_000);
    const nodePorts = services.flatMap(({ ports: [{ nodePort }] }) => (nodePort === undefined ? [] : [nodePort]));
    assert.ok(nodePorts.length > 1_000 && new Set(nodePorts).size === nodePorts.length);
    assert.ok(Math.min(...nodePorts) >= 30_000 && Math.max(...nodePorts) <= 32_767);
    assert.ok(services.every(({ endpoints }) => endpoints.length === 2));
    assert.ok(services.some(({ ports: [{ protocol }] }) => protocol === 'UDP'));
    assert.ok(services.some(({ affinitySeconds }) => affinitySeconds !== undefined));
  });

  test('all changes can be taken back', async () => {
    const store = new MemoryStore();
    const churn = new Churn(store, seededRandom(7), { first: 5_000, reshaped: 0.3 });
    await churn.fill(500);
    const services = new Map(store.services);
    for (let round = 0; round < 3; round++) {
      await churn.rush(1_000);
      assert.notDeepEqual(store.services, services);
      assert.ok([...store.services.values()].some(({ annotations }) => annotations !== undefined));
      await churn.restore(500);
      assert.deepEqual(store.services, services);
      assert.deepEqual(new Map(churn.services.map((service) => [service.name, service])), services);
    }
  });

  test('a reserved Service is never changed', async () => {
    const store = new MemoryStore();
    const churn = new Churn(store, seededRandom(7));
    await churn.fill(10);
    const reserved = churn.reserve(['10.0.0.1']);
    await store.create(reserved);
    await churn.rush(1_000);
    assert.deepEqual(store.services.get(reserved.name), reserved);
  });
});
