/** For all Service ports that share one {@link KeptBytes}. */
const MAX_BYTES = 4 << 20;

/** For each of them, so that one whose endpoints never answer leaves room for the others. */
const MAX_BYTES_PER_PORT = 1 << 20;

/** A Service port, which counts its share. */
export interface KeepingPort {
  keptBytes: number;
}

/** Bytes of datagrams that are kept by one worker thread, or by an engine without threads. */
export class KeptBytes {
  #bytes = 0;

  /** False, and nothing taken, at a limit. */
  tryTake(port: KeepingPort, bytes: number): boolean {
    if (this.#bytes + bytes > MAX_BYTES || port.keptBytes + bytes > MAX_BYTES_PER_PORT) return false;
    this.#add(port, bytes);
    return true;
  }

  give(port: KeepingPort, bytes: number): void {
    this.#add(port, -bytes);
  }

  #add(port: KeepingPort, bytes: number): void {
    this.#bytes += bytes;
    port.keptBytes += bytes;
  }
}
