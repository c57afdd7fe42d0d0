import type { ProxiedProtocol } from '../../../model/service-port.ts';
import { type DescriptorPlan, hasShare } from '../../descriptor-share.ts';
import type { Holding } from '../../holdings.ts';
import { STATUS, STATUS_WORDS } from './protocol.ts';

/** Of pipes, which only make bulk cheaper, none is opened while less than this part is free. */
const SCARCE = 8;

/**
 * The descriptors for listeners and clients. Each thread counts its own: workers those of connections and flows, which
 * count whole from the moment when a client is accepted, of pipes and of parked sockets; the main thread all others.
 */
export class Descriptors {
  readonly #plan: DescriptorPlan;
  readonly #status: Int32Array;
  readonly #own: number;
  /** In which {@link #others} were added up. */
  #turn: number | undefined;
  #others = 0;

  constructor(plan: DescriptorPlan, status: SharedArrayBuffer, worker: number) {
    this.#plan = plan;
    this.#status = new Int32Array(status);
    this.#own = worker * STATUS_WORDS;
  }

  add(amount: number): void {
    const at = this.#own + STATUS.descriptors;
    this.#status[at] = (this.#status[at] as number) + amount;
  }

  get areScarce(): boolean {
    return this.#free < this.#plan.total / SCARCE;
  }

  /** See {@link hasShare}. `more`: if so many more were free. */
  admits(protocol: ProxiedProtocol, holding: Holding, more = 0): boolean {
    return hasShare(protocol, this.#plan, this.#free + more, holding);
  }

  get #free(): number {
    const status = this.#status;
    const turn = status[this.#own + STATUS.turns] as number;
    if (turn !== this.#turn) {
      // Once in a turn: this reads what other cores are writing.
      this.#turn = turn;
      this.#others = 0;
      for (let row = 0; row < status.length; row += STATUS_WORDS) {
        if (row !== this.#own) this.#others += status[row + STATUS.descriptors] as number;
      }
    }
    return this.#plan.total - this.#others - (status[this.#own + STATUS.descriptors] as number);
  }
}
