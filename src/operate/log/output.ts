import { writeSync } from 'node:fs';
import { isatty } from 'node:tty';

/* Where lines of the log go: a descriptor, and in front of it the status line of a terminal. */

const STDERR = 2;

export interface LogOutput {
  readonly isTTY: boolean;
  /** Takes one line with its newline. Throws when it could not be written. */
  write(line: string): void;
}

/**
 * Writes to a descriptor directly, not through `process.stderr`. That stream ends for good after one error, so a disk
 * that was full for a moment would silence the log for good. A line that is written at once is not lost on exit.
 */
export function descriptorOutput(fd: number): LogOutput {
  // Creating the stream makes a pipe or socket non-blocking, for which Node has no other means. A reader that has
  // stopped must cost lines, not block this process.
  if (fd === STDERR) void process.stderr;
  let torn = false;
  return {
    isTTY: isatty(fd),
    write: (line) => {
      // The part of a line that a full disk cut off must not become the beginning of this one.
      const bytes = Buffer.from(torn ? `\n${line}` : line);
      let written = 0;
      try {
        while (written < bytes.length) written += writeSync(fd, bytes, written);
        torn = false;
      } catch (error) {
        torn ||= written > 0;
        throw error;
      }
    },
  };
}

/** To the beginning of the line, and erase it (ECMA-48 CR and EL). */
const ERASE = '\r\x1b[2K';

/**
 * A line at the bottom of a terminal that is redrawn in place. The log writes through it too, so that its lines appear
 * above; the status line comes back when it is shown again.
 */
export class StatusLine implements LogOutput {
  readonly #output: LogOutput;
  readonly #columns: () => number;
  #shown: string | undefined;
  #isBroken = false;

  /** `columns`: of the terminal now; its size may change. */
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

  /** Replaces the last one. `text` is one line and is cut to the terminal's width. */
  show(text: string): void {
    // A line that reached the edge would wrap, and only its last part would be erased.
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

  /** A terminal that has gone is no reason to fail; nothing is drawn there again. */
  #draw(text: string): void {
    if (!this.isTTY || this.#isBroken) return;
    try {
      this.#output.write(text);
    } catch {
      this.#isBroken = true;
    }
  }
}
