import type { ListenerId } from '../model/service-port.ts';
import { MAX_RETIRED } from '../rules/local-ports.ts';

interface Entry {
  readonly owner: ListenerId;
  readonly untilMs: number;
}

/**
 * Which listener had which local port of late. The kernel goes on sending what belongs to a known connection or flow to
 * the old local port (conntrack), so another Service there would get somebody else's packets.
 */
export class PortHistory {
  /** By local port, the next to be forgotten first. */
  readonly #entries = new Map<number, Entry>();
  readonly #ports = new Map<ListenerId, number>();
  #maxEntries = MAX_RETIRED;

  /** Later entries must last at least as long as earlier ones. Beyond the bound, the oldest are forgotten. */
  add(port: number, entry: Entry): void {
    this.#forget(port);
    this.#entries.set(port, entry);
    this.#ports.set(entry.owner, port);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#maxEntries) break;
      this.#forget(oldest);
    }
  }

  /** Makes room for so many, however many that is: all the Service ports of a previous run come at once. */
  reserve(count: number): void {
    this.#maxEntries = Math.max(MAX_RETIRED, count);
  }

  expire(nowMs: number): void {
    for (const [port, { untilMs }] of this.#entries) {
      if (untilMs > nowMs) break;
      this.#forget(port);
    }
  }

  ownerOf(port: number): ListenerId | undefined {
    return this.#entries.get(port)?.owner;
  }

  portOf(owner: ListenerId): number | undefined {
    return this.#ports.get(owner);
  }

  #forget(port: number): void {
    const owner = this.ownerOf(port);
    this.#entries.delete(port);
    if (owner !== undefined && this.#ports.get(owner) === port) this.#ports.delete(owner);
  }
}
