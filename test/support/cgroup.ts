import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = '/sys/fs/cgroup';

/** What something is called, or what is written, in each version of control groups. */
interface Names {
  readonly v1: string;
  readonly v2: string;
}

/** A control group of one controller. */
class Cgroup {
  readonly #folder: string;
  readonly #isV1: boolean;

  constructor(controller: Names, name: string) {
    const v1 = join(ROOT, controller.v1);
    this.#isV1 = existsSync(v1);
    if (!this.#isV1) writeFileSync(join(ROOT, 'cgroup.subtree_control'), `+${controller.v2}`);
    this.#folder = join(this.#isV1 ? v1 : ROOT, name);
    mkdirSync(this.#folder);
  }

  add(pid: number): void {
    writeFileSync(join(this.#folder, 'cgroup.procs'), String(pid));
  }

  /** False while it still has processes. */
  remove(): boolean {
    try {
      rmdirSync(this.#folder);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EBUSY') return false;
      throw error;
    }
  }

  protected read(file: Names): string {
    return readFileSync(join(this.#folder, this.#of(file)), 'utf8');
  }

  protected write(file: Names, text: Names): void {
    writeFileSync(join(this.#folder, this.#of(file)), this.#of(text));
  }

  #of({ v1, v2 }: Names): string {
    return this.#isV1 ? v1 : v2;
  }
}

/** One with a bound on memory. A process brings nothing along: what it takes from then on counts. */
export class MemoryCgroup extends Cgroup {
  constructor(name: string) {
    super({ v1: 'memory', v2: 'memory' }, name);
  }

  limit(bytes: number): void {
    this.write({ v1: 'memory.limit_in_bytes', v2: 'memory.max' }, { v1: `${bytes}`, v2: `${bytes}` });
  }

  /** The most that was taken. */
  peak(): number {
    return Number(this.read({ v1: 'memory.max_usage_in_bytes', v2: 'memory.peak' }));
  }
}

/** One that writes slowly to a disk. */
export class SlowDiskCgroup extends Cgroup {
  /** Whether the kernel can slow down disks. */
  static get isPossible(): boolean {
    return existsSync(`${ROOT}/blkio`) || existsSync(`${ROOT}/io.stat`);
  }

  constructor(name: string) {
    super({ v1: 'blkio', v2: 'io' }, name);
  }

  /** `device`: its numbers, "7:0". */
  limitWrites(device: string, bytesPerSecond: number): void {
    const text = { v1: `${device} ${bytesPerSecond}`, v2: `${device} wbps=${bytesPerSecond}` };
    this.write({ v1: 'blkio.throttle.write_bps_device', v2: 'io.max' }, text);
  }
}
