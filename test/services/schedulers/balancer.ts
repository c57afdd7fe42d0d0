import assert from 'node:assert/strict';
import type { Backends } from '../../../src/model/data-plane.ts';
import type { SchedulerName } from '../../../src/model/scheduler.ts';
import type { Member } from '../../../src/services/member.ts';
import { Picker } from '../../../src/services/picker.ts';
import { MaglevTables } from '../../../src/services/schedulers/maglev-tables.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { create, endpoint, remembering } from '../backends.ts';

/** Weights by the last octet of the endpoint's address. */
export type Weights = ReadonlyMap<number, number>;

export function equal(count: number): Weights {
  return new Map(Array.from({ length: count }, (_, index) => [index + 1, 1]));
}

/** A picker with one scheduler, and the connections that were made through it. */
export class Balancer {
  readonly picker: Picker;
  nowMs = 0;
  readonly #scheduler: SchedulerName;
  readonly #slowStartMs: number;

  constructor(scheduler: SchedulerName, weights: Weights, { seed = 1, slowStartMs = 0 } = {}) {
    this.#scheduler = scheduler;
    this.#slowStartMs = slowStartMs;
    this.picker = new Picker({
      create,
      random: seededRandom(seed),
      affinity: remembering(100),
      maglevTables: new MaglevTables(),
    });
    this.update(weights);
  }

  backends(weights: Weights): Backends {
    return {
      endpoints: Array.from(weights, ([host, weight]) => ({ ...endpoint(host), ...(weight !== 1 && { weight }) })),
      affinity: { type: 'None' },
      scheduler: this.#scheduler,
      slowStartMs: this.#slowStartMs,
    };
  }

  update(weights: Weights): void {
    this.picker.update(this.backends(weights), this.nowMs);
  }

  /** The connection is held until `released`. */
  connect(client = '192.0.2.1'): Member {
    const member = this.picker.pick(client, this.nowMs).next();
    assert.ok(member !== undefined);
    member.taken();
    return member;
  }

  /** How many of so many connections, each over before the next, went to which host. Each is of another client. */
  shares(connections: number): ReadonlyMap<number, number> {
    return countBy(connections, (index) => {
      const member = this.connect(clientOf(index));
      member.released();
      return member;
    });
  }

  /** The same, but no connection ends. */
  held(connections: number): ReadonlyMap<number, number> {
    return countBy(connections, (index) => this.connect(clientOf(index)));
  }
}

function countBy(times: number, memberOf: (index: number) => Member): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (let index = 0; index < times; index++) {
    const host = hostOf(memberOf(index));
    counts.set(host, (counts.get(host) ?? 0) + 1);
  }
  return new Map([...counts].toSorted(([a], [b]) => a - b));
}

export function hostOf(member: Member): number {
  return Number(member.endpoint.address.split('.')[3]);
}

export function clientOf(index: number): string {
  return `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
}
