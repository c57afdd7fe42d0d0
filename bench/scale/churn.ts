import type { Random } from '../../src/util/clock.ts';
import type { ServiceStore } from './service-store.ts';
import { endpointsOf, MAX_NUMBER, type ScaleService, service } from './services.ts';

/** Of the changes; the others replace a Service's endpoints. As many are created as deleted. */
const CREATED = 0.1;
const DELETED = 0.1;

/** Writes that may be on their way at once. */
const PARALLEL = 8;

/** Random changes of what a store holds, and the knowledge of what it holds afterwards. */
export class Churn {
  readonly #store: ServiceStore;
  readonly #random: Random;
  readonly #services: ScaleService[] = [];
  readonly #freeNumbers: number[] = [];
  #nextNumber = 0;

  constructor(store: ServiceStore, random: Random) {
    this.#store = store;
    this.#random = random;
  }

  /** What the store holds when no change is on its way. */
  get services(): readonly ScaleService[] {
    return this.#services;
  }

  /** Creates Services until there are so many. */
  async fill(count: number): Promise<void> {
    await this.#inParallel(count - this.#services.length, () => this.#create());
  }

  /** So many changes as fast as they can be written. */
  async rush(count: number): Promise<void> {
    await this.#inParallel(count, () => this.#change());
  }

  /** So many changes a second until `stop`, which gives how many there were. */
  background(perSecond: number): { stop: () => Promise<number> } {
    let written = 0;
    let running = true;
    const begun = performance.now();
    const run = async () => {
      while (running) {
        const due = Math.floor(((performance.now() - begun) / 1_000) * perSecond);
        if (written < due) {
          written++;
          await this.#change();
        } else {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      }
    };
    const writers = Promise.all(Array.from({ length: PARALLEL }, run));
    return {
      stop: async () => {
        running = false;
        await writers;
        return written;
      },
    };
  }

  /** A Service of one TCP port that is not in the store and that no change will ever touch. */
  reserve(endpoints: readonly string[]): ScaleService {
    const { name, number, clusterIP } = service(this.#takeNumber());
    return { name, number, clusterIP, ports: service(0).ports, endpoints };
  }

  async #change(): Promise<void> {
    const draw = this.#random();
    if (draw < CREATED) await this.#create();
    else if (draw < CREATED + DELETED) await this.#delete();
    else await this.#setEndpoints();
  }

  async #create(): Promise<void> {
    const created = service(this.#takeNumber());
    await this.#store.create(created);
    this.#services.push(created);
  }

  async #delete(): Promise<void> {
    const taken = this.#take();
    if (taken === undefined) return;
    await this.#store.delete(taken);
    this.#freeNumbers.push(taken.number);
  }

  async #setEndpoints(): Promise<void> {
    const taken = this.#take();
    if (taken === undefined) return;
    const changed = { ...taken, endpoints: endpointsOf(Math.floor(this.#random() * 3)) };
    await this.#store.setEndpoints(changed);
    this.#services.push(changed);
  }

  #takeNumber(): number {
    const number = this.#freeNumbers.pop() ?? this.#nextNumber++;
    if (number >= MAX_NUMBER) throw new Error(`there are addresses for ${MAX_NUMBER} Services only`);
    return number;
  }

  async #inParallel(count: number, work: () => Promise<void>): Promise<void> {
    let left = count;
    const writer = async () => {
      while (left-- > 0) await work();
    };
    await Promise.all(Array.from({ length: PARALLEL }, writer));
  }

  /** A random one, which nobody else can take until it is put back. */
  #take(): ScaleService | undefined {
    const index = Math.floor(this.#random() * this.#services.length);
    const last = this.#services.pop();
    if (last === undefined || index === this.#services.length) return last;
    const taken = this.#services[index];
    this.#services[index] = last;
    return taken;
  }
}
