import { writeSync } from 'node:fs';
import { isatty } from 'node:tty';

const STDERR = 2;

/** Where finished lines go. */
export interface LogOutput {
  readonly isTTY: boolean;
  /** Takes one line with its newline. Throws when it could not be written. */
  write(line: string): void;
}

/**
 * Writes to a descriptor directly. Not through `process.stderr`: its stream is finished for good after one error, so a
 * disk that was full for a moment would silence the log for ever; and a line written at once is not lost on exit.
 */
export function descriptorOutput(fd: number): LogOutput {
  // With its stream, Node makes a pipe or a socket one that does not block, for which it has no other means: a reader
  // that has stopped is to cost lines, and not to stop us.
  if (fd === STDERR) void process.stderr;
  let torn = false;
  return {
    isTTY: isatty(fd),
    write: (line) => {
      // The piece of a line that a full disk cut off must not become the beginning of this one.
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
