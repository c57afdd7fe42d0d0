import type { Terminal } from '../../src/cli/command.ts';

/** Keeps what is printed. */
export class RecordingTerminal implements Terminal {
  printed = '';
  complained = '';
  /** All output at the last flush. */
  flushed = '';
  readonly isTTY: boolean;

  constructor({ isTTY = false }: { readonly isTTY?: boolean } = {}) {
    this.isTTY = isTTY;
  }

  readonly out = (text: string): void => {
    this.printed += text;
  };

  readonly err = (text: string): void => {
    this.complained += text;
  };

  readonly flush = (): Promise<void> => {
    this.flushed = this.printed + this.complained;
    return Promise.resolve();
  };

  size() {
    return { columns: 80, rows: 24 };
  }
}
