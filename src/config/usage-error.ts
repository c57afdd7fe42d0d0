/** What the user must mend on the command line. The message is a clause that follows the flag and its value. */
export class UsageError extends Error {
  override readonly name: string = 'UsageError';
}

/** What is to be mended in the file of `--config`. */
export class FileError extends UsageError {
  override readonly name = 'FileError';
  /** From 1. */
  readonly line: number;

  constructor(message: string, line: number) {
    super(message);
    this.line = line;
  }
}
