import type { Port } from './port.ts';

/** The objects around a datagram; without it, empty datagrams would cost nothing. */
const OVERHEAD_BYTES = 512;

/** Of one client. A resolver sends its questions for both families at once; few clients have more under way. */
const MAX_DATAGRAMS = 16;

interface Unanswered {
  readonly datagram: Uint8Array;
  /** When it was sent to the endpoint that is asked now. */
  sentMs: number;
}

/** What one client has asked and nobody has answered, in the order in which it came. Nobody may change the bytes. */
export class Backlog {
  readonly #port: Port;
  readonly #unanswered: Unanswered[] = [];
  #bytes = 0;

  constructor(port: Port) {
    this.#port = port;
  }

  get size(): number {
    return this.#unanswered.length;
  }

  get datagrams(): readonly Uint8Array[] {
    return this.#unanswered.map(({ datagram }) => datagram);
  }

  *[Symbol.iterator](): Generator<Unanswered, undefined> {
    yield* this.#unanswered;
  }

  /** Whether there is room for a datagram of this length, which {@link add} takes: none is copied in vain. */
  hasRoomFor(length: number): boolean {
    if (this.#unanswered.length >= MAX_DATAGRAMS) return false;
    const bytes = length + OVERHEAD_BYTES;
    const hasRoom = this.#port.thread.shares.datagramBytes.tryTake(bytes, this.#port.share);
    if (hasRoom) this.#bytes += bytes;
    else this.#port.count('notKept');
    return hasRoom;
  }

  /** After {@link hasRoomFor}. */
  add(datagram: Uint8Array, sentMs: number): void {
    this.#unanswered.push({ datagram, sentMs });
  }

  /** None of the first `count` is sent again. */
  forget(count: number): void {
    for (const { datagram } of this.#unanswered.splice(0, count)) this.#give(datagram.length + OVERHEAD_BYTES);
  }

  /** Forgets those that were sent before. */
  forgetBefore(sentMs: number): void {
    const first = this.#unanswered.findIndex((each) => each.sentMs >= sentMs);
    this.forget(first < 0 ? this.#unanswered.length : first);
  }

  clear(): void {
    this.#unanswered.length = 0;
    this.#give(this.#bytes);
  }

  #give(bytes: number): void {
    this.#bytes -= bytes;
    this.#port.thread.shares.datagramBytes.give(bytes, this.#port.share);
  }
}
