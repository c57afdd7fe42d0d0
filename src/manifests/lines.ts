/** In which line an offset of a text is. Reads only as much of the text as it is asked for. */
export class Lines {
  readonly #text: string;
  /** Where lines begin, in order, as far as was looked. */
  readonly #starts = [0];
  #lookedTo = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** From 1. */
  at(offset: number): number {
    this.#lookTo(offset);
    let [low, high] = [0, this.#starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#starts[middle] ?? 0) <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #lookTo(offset: number): void {
    while (this.#lookedTo < offset) {
      const newline = this.#text.indexOf('\n', this.#lookedTo);
      this.#lookedTo = newline < 0 ? this.#text.length + 1 : newline + 1;
      if (newline >= 0) this.#starts.push(newline + 1);
    }
  }
}
