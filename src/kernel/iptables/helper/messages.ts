/** One message of a stream: a line of JSON that also says how many bytes follow it, and those bytes. */
export interface Message {
  readonly head: unknown;
  readonly body: Buffer;
}

/** Far above what a message's head or a table's rules take: whoever exceeds it does not speak this protocol. */
const MAX_HEAD_BYTES = 1 << 20;
const MAX_BODY_BYTES = 1 << 28;

const NEWLINE = 10;

/** What to write, piece by piece; the body comes in pieces, too. */
export function encodeMessage(head: unknown, body: readonly Buffer[]): readonly Buffer[] {
  const bytes = body.reduce((sum, { length }) => sum + length, 0);
  return [Buffer.from(`${JSON.stringify({ head, bytes })}\n`), ...body];
}

/** Puts messages together again from the pieces that a stream delivers. */
export class MessageReader {
  readonly #onMessage: (message: Message) => void;
  #line: Buffer = Buffer.alloc(0);
  #head: unknown;
  /** Where the bytes go; `undefined` while the line before them is incomplete. */
  #body: Buffer | undefined;
  #filled = 0;

  constructor(onMessage: (message: Message) => void) {
    this.#onMessage = onMessage;
  }

  /** Throws when this is no such stream. */
  push(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      rest = this.#body === undefined ? this.#takeHead(rest) : this.#takeBody(this.#body, rest);
      if (this.#body !== undefined && this.#filled === this.#body.length) {
        const message = { head: this.#head, body: this.#body };
        this.#body = undefined;
        this.#onMessage(message);
      }
    }
  }

  #takeHead(chunk: Buffer): Buffer {
    const end = chunk.indexOf(NEWLINE);
    this.#line = Buffer.concat([this.#line, end < 0 ? chunk : chunk.subarray(0, end)]);
    if (this.#line.length > MAX_HEAD_BYTES) throw new Error(`a message's head has more than ${MAX_HEAD_BYTES} bytes`);
    if (end < 0) return chunk.subarray(chunk.length);
    const { head, bytes } = JSON.parse(this.#line.toString());
    if (!Number.isInteger(bytes) || bytes < 0 || bytes > MAX_BODY_BYTES) throw new Error(`a message of ${bytes} bytes`);
    this.#line = Buffer.alloc(0);
    this.#head = head;
    // Filled piece by piece: putting megabytes together at the end would hold up the event loop.
    this.#body = Buffer.allocUnsafe(bytes);
    this.#filled = 0;
    return chunk.subarray(end + 1);
  }

  #takeBody(body: Buffer, chunk: Buffer): Buffer {
    const taken = chunk.copy(body, this.#filled);
    this.#filled += taken;
    return chunk.subarray(taken);
  }
}
