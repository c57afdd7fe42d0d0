/** A line that is longer than any object of the API can be. */
export class LineTooLongError extends Error {
  override readonly name = 'LineTooLongError';
}

const NEWLINE = 0x0a;

/** Cuts a byte stream into lines. What is kept between chunks is bounded. */
export class LineSplitter {
  readonly #maxBytes: number;
  #parts: Uint8Array[] = [];
  #length = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The lines that this chunk completes; empty ones are left out. Throws {@link LineTooLongError}. */
  *push(chunk: Uint8Array): Generator<string> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      this.#keep(chunk.subarray(start, end));
      start = end + 1;
      const line = this.#take();
      if (line !== '') yield line;
    }
    this.#keep(chunk.subarray(start));
  }

  #keep(part: Uint8Array): void {
    if (part.length === 0) return;
    this.#length += part.length;
    if (this.#length > this.#maxBytes) throw new LineTooLongError(`a line has more than ${this.#maxBytes} bytes`);
    this.#parts.push(part);
  }

  #take(): string {
    const line = Buffer.concat(this.#parts, this.#length).toString('utf8').trim();
    this.#parts = [];
    this.#length = 0;
    return line;
  }
}
