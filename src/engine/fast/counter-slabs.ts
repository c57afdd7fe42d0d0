import { COUNTERS_BYTES, type CounterBlocks } from './worker/protocol.ts';

/** A page of memory, or almost. */
const BLOCKS_PER_SLAB = 32;

/**
 * Gives out memory for counters, many blocks from one allocation, for one of its own costs several times what is in it. A
 * block is never given out twice, as nobody knows when the last connection that counts in it is over: a slab is freed when
 * neither thread holds any of its blocks. So let only blocks of a similar length of life share one.
 */
export class CounterSlabs {
  #memory = new SharedArrayBuffer(0);
  #next = 0;

  /** Zeroed, and one after the other. */
  take(blocks: number): CounterBlocks {
    const bytes = blocks * COUNTERS_BYTES;
    if (this.#next + bytes > this.#memory.byteLength) {
      this.#memory = new SharedArrayBuffer(Math.max(blocks, BLOCKS_PER_SLAB) * COUNTERS_BYTES);
      this.#next = 0;
    }
    const offset = this.#next;
    this.#next += bytes;
    return { memory: this.#memory, offset };
  }
}
