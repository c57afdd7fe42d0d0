/** After so many failures in a row only some of the occasions are tried. */
const FAILURES = 4;
const OCCASIONS_PER_TRY = 64;

/** Whether a system call that only sometimes pays is worth making. It learns from those that were made. */
export class Guess {
  /** Occasions since the last success. */
  #inVain = 0;

  get isWorthwhile(): boolean {
    return this.#inVain < FAILURES || this.#inVain % OCCASIONS_PER_TRY === 0;
  }

  /** After each occasion, whether or not the call was made. */
  note(hasPaid: boolean): void {
    this.#inVain = hasPaid ? 0 : this.#inVain + 1;
  }
}
