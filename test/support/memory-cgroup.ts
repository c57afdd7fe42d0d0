import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const V1 = '/sys/fs/cgroup/memory';
const V2 = '/sys/fs/cgroup';

/** A control group with a bound on memory. A process brings nothing along: what it takes from then on counts. */
export class MemoryCgroup {
  readonly #folder: string;
  readonly #isV1 = existsSync(V1);

  constructor(name: string) {
    if (!this.#isV1) writeFileSync(join(V2, 'cgroup.subtree_control'), '+memory');
    this.#folder = join(this.#isV1 ? V1 : V2, name);
    mkdirSync(this.#folder);
  }

  add(pid: number): void {
    writeFileSync(join(this.#folder, 'cgroup.procs'), String(pid));
  }

  limit(bytes: number): void {
    writeFileSync(join(this.#folder, this.#isV1 ? 'memory.limit_in_bytes' : 'memory.max'), String(bytes));
  }

  /** The most that was taken. */
  peak(): number {
    const text = readFileSync(join(this.#folder, this.#isV1 ? 'memory.max_usage_in_bytes' : 'memory.peak'), 'utf8');
    return Number(text);
  }

  /** All its processes must have ended. */
  remove(): void {
    rmdirSync(this.#folder);
  }
}
