import { mayTakeMore } from '../../../services/fair-share.ts';
import type { Holding } from '../../holdings.ts';

/** For one worker. */
const MAX_BYTES = 32 << 20;

/** Every stream may keep as much, which counts nowhere: descriptors limit how many there are. */
const FREE_BYTES = 4 << 10;

/** A Service port, whose namespace has a share. */
interface StreamPort {
  readonly holding: Pick<Holding, 'add' | 'stalledBytes'>;
}

/**
 * Bytes that have been read and whose receiver takes no more for now, in one worker. A namespace that has its share of
 * them reads so little at a time that no more can stall.
 */
export class StalledBytes {
  readonly #max: number;
  #bytes = 0;

  constructor(max = MAX_BYTES) {
    this.#max = max;
  }

  /** How much to read at a time, at most `wanted`. */
  readLength(port: StreamPort, wanted: number): number {
    // No namespace has more than all.
    if (this.#bytes < this.#max / 2) return wanted;
    return mayTakeMore(port.holding.stalledBytes, this.#max - this.#bytes) ? wanted : Math.min(wanted, FREE_BYTES);
  }

  /** So many bytes of one stream stall. */
  take(port: StreamPort, length: number): void {
    if (length > FREE_BYTES) this.#add(port, length - FREE_BYTES);
  }

  /** They stall no longer. */
  give(port: StreamPort, length: number): void {
    if (length > FREE_BYTES) this.#add(port, FREE_BYTES - length);
  }

  #add({ holding }: StreamPort, bytes: number): void {
    this.#bytes += bytes;
    holding.add(bytes, 'stalledBytes');
  }
}
