import type { LogOutput } from './log-output.ts';

/** To the beginning of the line, and erase it (ECMA-48 CR and EL). */
const ERASE = '\r\x1b[2K';

/**
 * One line at the end of a terminal's text that is drawn again in place. Lines of the log go through it as well, so that
 * they stand where it was, and it comes back below them the next time it is shown.
 */
export class StatusLine implements LogOutput {
  readonly #output: LogOutput;
  readonly #columns: () => number;
  #shown: string | undefined;
  #isBroken = false;

  /** `columns`: of the terminal, which may change its size. */
  constructor(output: LogOutput, columns: () => number) {
    this.#output = output;
    this.#columns = columns;
  }

  get isTTY(): boolean {
    return this.#output.isTTY;
  }

  /** A line that stays. */
  write(line: string): void {
    this.clear();
    this.#output.write(line);
  }

  /** In place of the last one. `text` is one line; what does not fit is cut off. */
  show(text: string): void {
    // One that reached the edge would be wrapped, and only its last part be erased.
    const line = text.slice(0, this.#columns() - 1);
    if (line === this.#shown) return;
    this.#draw(ERASE + line);
    this.#shown = line;
  }

  clear(): void {
    if (this.#shown === undefined) return;
    this.#draw(ERASE);
    this.#shown = undefined;
  }

  /** A terminal that has gone is no reason to fail, and is not tried again. */
  #draw(text: string): void {
    if (!this.isTTY || this.#isBroken) return;
    try {
      this.#output.write(text);
    } catch {
      this.#isBroken = true;
    }
  }
}
