import { readFileSync } from 'node:fs';

/** The kernel counts in ticks of 10 ms (`USER_HZ`), so a shorter look would be too coarse. */
const MIN_MS = 100;
const MS_PER_TICK = 10;

/** How many cores of the machine had nothing to do, between one look and the next; 0 where nobody can say. */
export class IdleCores {
  readonly #read: () => string;
  #lookedMs = Number.NEGATIVE_INFINITY;
  #ticks = 0;
  #cores = 0;

  /** `read`: gives `/proc/stat`. */
  constructor(read: () => string = () => readFileSync('/proc/stat', 'latin1')) {
    this.#read = read;
  }

  /**
   * The mean number since the look before, which must be at most `maxMs` ago; else 0. Looks no more often than every
   * 100 ms.
   */
  at(nowMs: number, maxMs: number): number {
    const passedMs = nowMs - this.#lookedMs;
    if (passedMs < MIN_MS) return this.#cores;
    const ticks = this.#ticksNow();
    this.#cores = passedMs <= maxMs ? ((ticks - this.#ticks) * MS_PER_TICK) / passedMs : 0;
    this.#ticks = ticks;
    this.#lookedMs = nowMs;
    return this.#cores;
  }

  /** The same as before when it cannot be read, as without a free descriptor. */
  #ticksNow(): number {
    try {
      return idleTicks(this.#read());
    } catch {
      return this.#ticks;
    }
  }
}

/** Of all cores, waits for disks included: the fourth and fifth number of the first line (proc(5)). */
function idleTicks(stat: string): number {
  const [, , , , idle = '0', waiting = '0'] = stat.slice(0, stat.indexOf('\n')).split(/ +/);
  return Number(idle) + Number(waiting);
}
