import { isDeepStrictEqual } from 'node:util';
import type { Random } from '../../src/util/clock.ts';
import type { ServiceStore } from './service-store.ts';
import { endpointsOf, MAX_NUMBER, type ScaleService, service } from './services.ts';

/** Of the changes; the others replace a Service's endpoints. As many are created as deleted. */
const CREATED = 0.1;
const DELETED = 0.1;

/** What a Service may ask for, and stop asking for. */
const ANNOTATIONS: readonly (Readonly<Record<string, string>> | undefined)[] = [
  undefined,
  { 'kube-userspace-proxy/scheduler': 'lc', 'kube-userspace-proxy/slow-start': '10s' },
  { 'kube-userspace-proxy/scheduler': 'mh' },
  { 'kube-userspace-proxy/client-address': 'node', 'kube-userspace-proxy/udp-replay': '1s' },
];

export interface ChurnOptions {
  /** Services are numbered from here on. */
  readonly first?: number;
  /** Of the changes: those of a Service's port and annotations. */
  readonly reshaped?: number;
}

/** Writes that may be on their way at once. */
const PARALLEL = 8;

/** Random changes of what a store holds, and the knowledge of what it holds afterwards. */
export class Churn {
  readonly #store: ServiceStore;
  readonly #random: Random;
  readonly #reshaped: number;
  readonly #first: number;
  #services: ScaleService[] = [];
  #freeNumbers: number[] = [];
  #nextNumber: number;

  constructor(store: ServiceStore, random: Random, { first = 0, reshaped = 0 }: ChurnOptions = {}) {
    this.#store = store;
    this.#random = random;
    this.#reshaped = reshaped;
    this.#first = first;
    this.#nextNumber = first;
  }

  /** What the store holds when no change is on its way. */
  get services(): readonly ScaleService[] {
    return this.#services;
  }

  /** Creates Services until there are so many. */
  async fill(count: number): Promise<void> {
    await this.#inParallel(count - this.#services.length, () => this.#create());
  }

  /** Takes back all changes since {@link fill} was called for so many. */
  async restore(count: number): Promise<void> {
    const wanted = Array.from({ length: count }, (_, index) => service(this.#first + index));
    const present = new Map(this.#services.map((service) => [service.number, service]));
    const numbers = new Set(wanted.map(({ number }) => number));
    const surplus = this.#services.filter(({ number }) => !numbers.has(number));
    const changed = wanted.filter((each) => !isDeepStrictEqual(present.get(each.number), each));
    const writes = [
      ...surplus.map((each) => () => this.#store.delete(each)),
      ...changed.map((each) => () => this.#store[present.has(each.number) ? 'replace' : 'create'](each)),
    ];
    await this.#inParallel(writes.length, () => writes.pop()!());
    this.#services = wanted;
    const free = [...this.#freeNumbers, ...surplus.map(({ number }) => number)];
    this.#freeNumbers = free.filter((number) => !numbers.has(number));
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
    // Whoever stops it is told.
    writers.catch(() => {});
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
    else if (draw < CREATED + DELETED + this.#reshaped) await this.#reshape();
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

  async #reshape(): Promise<void> {
    const taken = this.#take();
    if (taken === undefined) return;
    const { annotations: _, ...same } = taken;
    const [port] = same.ports;
    const annotations = ANNOTATIONS[Math.floor(this.#random() * ANNOTATIONS.length)];
    const moved = { ...port, port: port.port < 1_000 ? port.port + 1_000 : port.port - 1_000 };
    const changed: ScaleService = { ...same, ports: [moved], ...(annotations && { annotations }) };
    await this.#store.replace(changed);
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
