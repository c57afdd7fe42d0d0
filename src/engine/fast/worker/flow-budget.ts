import { STATUS, STATUS_WORDS } from './protocol.ts';

/**
 * The bound on the UDP flows of all workers together. Each worker writes only its own number and adds up all of them, so
 * there is nothing to lock; two workers that begin a flow in the same instant may pass the bound by one.
 */
export class FlowBudget {
  readonly #flows: readonly Int32Array[];
  readonly #own: Int32Array;
  readonly #max: number;

  constructor(status: SharedArrayBuffer, index: number, max: number) {
    const workers = status.byteLength / 4 / STATUS_WORDS;
    this.#flows = Array.from(
      { length: workers },
      (_, each) => new Int32Array(status, (each * STATUS_WORDS + STATUS.flows) * 4, 1),
    );
    this.#own = new Int32Array(status, (index * STATUS_WORDS + STATUS.flows) * 4, 1);
    this.#max = max;
  }

  get isSpent(): boolean {
    let flows = 0;
    for (const each of this.#flows) flows += each[0] as number;
    return flows >= this.#max;
  }

  begin(): void {
    this.#own[0] = (this.#own[0] as number) + 1;
  }

  end(): void {
    this.#own[0] = (this.#own[0] as number) - 1;
  }
}
