import { printable } from '../util/text.ts';

/**
 * What the user must correct on the command line, or in the file of `--config`. The message is a clause that follows
 * the flag and its value, or the place in the file. It may quote both, so it is made safe for a terminal.
 */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  /** Of the file, from 1. */
  readonly line: number | undefined;

  constructor(message: string, line?: number) {
    super(printable(message));
    this.line = line;
  }
}
