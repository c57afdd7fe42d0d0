/** For all Service ports that share one {@link KeptBytes}. */
const MAX_BYTES = 4 << 20;

/** For each of them, so that one whose endpoints never answer leaves room for the others. */
const MAX_BYTES_PER_PORT = 1 << 20;

/** The objects around a datagram; without it, empty datagrams would cost nothing. */
const OVERHEAD_BYTES = 512;

/** Of one client. A resolver sends its questions for both families at once; few clients have more under way. */
const MAX_DATAGRAMS = 16;

/**
 * How long datagrams are kept where silence does not send them again: an ICMP refusal takes one round trip, and no
 * longer than this for an address that nobody has (three requests for a neighbour, one second apart).
 */
export const REFUSAL_MS = 3500;

/** Endpoints that are asked in turn. Each further one multiplies what one forged datagram costs. */
export const MAX_ASKED = 8;

/** Bytes kept by one worker thread, or by an engine without threads. */
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

/** A Service port, which counts its share. */
export interface KeepingPort {
  keptBytes: number;
}

/** The datagrams of one client that no endpoint has answered: they can be sent to another one. */
export class Unanswered {
  readonly #kept: KeptBytes;
  readonly #port: KeepingPort;
  #datagrams: Uint8Array[] = [];
  #bytes = 0;
  #isOver = false;

  constructor(kept: KeptBytes, port: KeepingPort) {
    this.#kept = kept;
    this.#port = port;
  }

  /** In the order in which they came. */
  get datagrams(): readonly Uint8Array[] {
    return this.#datagrams;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether the client's next datagram is wanted. */
  get hasRoom(): boolean {
    return !this.#isOver && this.#datagrams.length < MAX_DATAGRAMS;
  }

  /** Makes room for a datagram of this length, before it is copied. False at a limit. */
  tryReserve(length: number): boolean {
    const bytes = length + OVERHEAD_BYTES;
    if (!this.#kept.tryTake(this.#port, bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  /** After {@link tryReserve}. Nobody may change its bytes. */
  add(datagram: Uint8Array): void {
    this.#datagrams.push(datagram);
  }

  /** An endpoint has answered the first `count`. */
  answered(count: number): void {
    for (const { length } of this.#datagrams.splice(0, count)) {
      this.#bytes -= length + OVERHEAD_BYTES;
      this.#kept.give(this.#port, length + OVERHEAD_BYTES);
    }
  }

  /** Nothing is left to answer, or nobody left to ask. */
  end(): void {
    this.#isOver = true;
    this.#kept.give(this.#port, this.#bytes);
    this.#bytes = 0;
    this.#datagrams = [];
  }
}
