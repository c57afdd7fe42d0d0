import { mayTakeMore } from '../services/fair-share.ts';
import type { Holding } from './holdings.ts';

/** For all Service ports that share one {@link KeptBytes}. */
const MAX_BYTES = 4 << 20;

/** For each of them, so that one whose endpoints never answer leaves room for the others. */
const MAX_BYTES_PER_PORT = 1 << 20;

/** A Service port, which counts its share. */
export interface KeepingPort {
  keptBytes: number;
  /** Its namespace's. */
  readonly holding: Pick<Holding, 'add' | 'keptBytes'>;
}

/** Bytes of datagrams that are kept by one worker thread, or by an engine without threads. */
export class KeptBytes {
  #bytes = 0;

  /** False, and nothing taken, at a limit. */
  tryTake(port: KeepingPort, bytes: number): boolean {
    if (this.#bytes + bytes > MAX_BYTES || port.keptBytes + bytes > MAX_BYTES_PER_PORT) return false;
    if (!mayTakeMore(port.holding.keptBytes, MAX_BYTES - this.#bytes)) return false;
    this.#add(port, bytes);
    return true;
  }

  give(port: KeepingPort, bytes: number): void {
    this.#add(port, -bytes);
  }

  #add(port: KeepingPort, bytes: number): void {
    this.#bytes += bytes;
    port.keptBytes += bytes;
    port.holding.add(bytes, 'keptBytes');
  }
}
