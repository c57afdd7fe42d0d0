import { readdirSync } from 'node:fs';
import { ownDescriptorLimit } from '../../kernel/process.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import { type DescriptorPlan, hasShare, planDescriptors } from '../descriptor-share.ts';
import { type Holding, Holdings } from '../holdings.ts';

/** How soon to look whether listeners may go on. */
const RETRY_MS = 50;

/** A listener with clients that nobody accepts now. */
interface Held {
  readonly holding: Holding;
  goOn(): void;
}

/** Who may have descriptors: each namespace has its share while few are free (docs/adr/0032). */
export class Admission {
  readonly holdings = new Holdings(1);
  /** By the whole process, about. */
  used: number;
  readonly #plan: DescriptorPlan;
  readonly #clock: Clock;
  readonly #held = new Set<Held>();
  #timer: Timer | undefined;

  constructor(clock: Clock, limit = ownDescriptorLimit()) {
    this.#clock = clock;
    this.#plan = planDescriptors(limit ?? Number.POSITIVE_INFINITY);
    this.used = openDescriptors();
  }

  /** Descriptors are opened, or closed. */
  add(amount: number): void {
    this.used += amount;
  }

  admits(protocol: ProxiedProtocol, holding: Pick<Holding, 'total'>): boolean {
    return hasShare(protocol, this.#plan, this.#plan.total - this.used, holding);
  }

  /**
   * The same for a client that was accepted already, as one is after others have taken the room: only far beyond its
   * share a namespace loses clients. It may have as many listeners as it likes, so there must be an end.
   */
  admitsAccepted(holding: Holding): boolean {
    return this.admits('TCP', { total: holding.total / 2 });
  }

  /** The listener does not accept any more. It goes on once its namespace may have one more client. */
  hold(listener: Held): void {
    this.#held.add(listener);
    this.#timer ??= this.#clock.after(RETRY_MS, () => this.#look());
  }

  /** The listener closes. */
  forget(listener: Held): void {
    this.#held.delete(listener);
    if (this.#held.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #look(): void {
    this.#timer = undefined;
    const held = [...this.#held];
    this.#held.clear();
    for (const listener of held) {
      if (this.admits('TCP', listener.holding)) listener.goOn();
      else this.hold(listener);
    }
  }
}

function openDescriptors(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}
