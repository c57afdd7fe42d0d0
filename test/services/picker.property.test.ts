import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Picker } from '../../src/services/picker.ts';
import { MaglevTables } from '../../src/services/schedulers/maglev-tables.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { backends, create, host, remembering } from './backends.ts';

const SEQUENCES = 400;
const STEPS = 60;
const MAX_CLIENTS = 3;
const TIMEOUT_SECONDS = 10;

/** The promises of a picker, written down without regard to how it keeps them. */
class Promises {
  readonly #withAffinity: boolean;
  readonly #where: string;
  #set = new Set<number>();
  /** In the order of last use. `host` is undefined when the endpoint has left: such a client is remembered in vain. */
  readonly #pins = new Map<string, { readonly host: number | undefined; readonly untilMs: number }>();
  #client = '';
  #nowMs = 0;
  #tries = 0;
  #tried = new Set<number>();

  constructor(withAffinity: boolean, where: string) {
    this.#withAffinity = withAffinity;
    this.#where = where;
  }

  updated(hosts: readonly number[]): void {
    this.#set = new Set(hosts);
    // What has left and come back is another endpoint, which may be tried again.
    for (const one of this.#tried) if (!this.#set.has(one)) this.#tried.delete(one);
    for (const [client, { host, untilMs }] of this.#pins) {
      if (host !== undefined && !this.#set.has(host)) this.#pins.set(client, { host: undefined, untilMs });
    }
  }

  picked(client: string, nowMs: number): void {
    this.#client = client;
    this.#nowMs = nowMs;
    this.#tries = 0;
    this.#tried = new Set();
    for (const [known, { untilMs }] of this.#pins) if (untilMs <= nowMs) this.#pins.delete(known);
  }

  gaveUp(): void {
    const done = this.#set.size === 0 || (this.#allTried() && this.#tries >= 4);
    assert.ok(done, `${this.#where}: gave up after ${this.#tries} tries`);
  }

  candidate(chosen: number): void {
    assert.ok(this.#set.has(chosen), `${this.#where}: ${chosen} is not in the set`);
    const early = this.#tried.has(chosen) && !this.#allTried();
    assert.ok(!early, `${this.#where}: ${chosen} again while others are untried`);
    const late = this.#allTried() && this.#tries >= 4;
    assert.ok(!late, `${this.#where}: ${chosen} is one try too many`);
    const pinned = this.#pins.get(this.#client)?.host;
    if (this.#tries === 0 && pinned !== undefined) {
      assert.equal(chosen, pinned, `${this.#where}: ${this.#client} lost its endpoint`);
    }
    this.#tries++;
    this.#tried.add(chosen);
    if (this.#withAffinity) this.#pin(chosen);
  }

  #pin(host: number): void {
    this.#pins.delete(this.#client);
    this.#pins.set(this.#client, { host, untilMs: this.#nowMs + TIMEOUT_SECONDS * 1000 });
    const [oldest] = this.#pins.keys();
    if (this.#pins.size > MAX_CLIENTS && oldest !== undefined) this.#pins.delete(oldest);
  }

  #allTried(): boolean {
    return [...this.#set].every((one) => this.#tried.has(one));
  }
}

function run(seed: number, withAffinity: boolean): void {
  const random = seededRandom(seed);
  const draw = (below: number): number => Math.floor(random() * below);
  const picker = new Picker({ create, random, affinity: remembering(MAX_CLIENTS), maglevTables: new MaglevTables() });
  const promises = new Promises(withAffinity, `seed ${seed}`);
  const update = (): void => {
    const hosts = Array.from({ length: draw(8) }, () => 1 + draw(9));
    picker.update(backends(hosts, withAffinity ? TIMEOUT_SECONDS : undefined), 0);
    promises.updated(hosts);
  };

  let nowMs = 0;
  for (let step = 0; step < STEPS; step++) {
    nowMs += draw(4000);
    if (draw(4) === 0) update();
    const client = `c${draw(5)}`;
    const pick = picker.pick(client, nowMs);
    promises.picked(client, nowMs);
    const failures = draw(12);
    const changeAt = draw(20);
    for (let tries = 0; tries <= failures; tries++) {
      if (tries === changeAt) update();
      const chosen = host(pick);
      if (chosen === undefined) {
        promises.gaveUp();
        break;
      }
      promises.candidate(chosen);
    }
  }
}

for (const withAffinity of [false, true]) {
  test(`any sequence of updates and picks keeps the promises, ${withAffinity ? 'with' : 'without'} affinity`, () => {
    for (let seed = 1; seed <= SEQUENCES; seed++) run(seed, withAffinity);
  });
}

test('turns are strict: between two changes of the set no endpoint gets two turns more than another', () => {
  for (let seed = 1; seed <= SEQUENCES; seed++) {
    const random = seededRandom(seed);
    const draw = (below: number): number => Math.floor(random() * below);
    const picker = new Picker({ create, random, affinity: remembering(MAX_CLIENTS), maglevTables: new MaglevTables() });
    const hosts = Array.from({ length: 1 + draw(8) }, (_, index) => index + 1);
    picker.update(backends(hosts), 0);
    const turns = new Map(hosts.map((one) => [one, 0]));
    for (let step = 0; step < 50; step++) {
      if (draw(5) === 0) picker.update(backends(hosts.toSorted(() => random() - 0.5)), 0);
      const chosen = host(picker.pick('c', 0)) ?? 0;
      turns.set(chosen, (turns.get(chosen) ?? 0) + 1);
      assert.ok(Math.max(...turns.values()) - Math.min(...turns.values()) <= 1, `seed ${seed}, step ${step}`);
    }
  }
});
