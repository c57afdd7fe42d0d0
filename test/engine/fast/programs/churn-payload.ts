/*
 * What goes through a churned connection: a token of its own, then one letter that tells the backend what to do, then
 * the token again and again. So every byte tells whose it is.
 */
export const TOKEN_BYTES = 16;
const HEADER_BYTES = TOKEN_BYTES + 1;

/** What the backend does: echo to the end; reset in the middle; end its direction after the first bytes. */
export type BackendMode = 'e' | 'r' | 'c';

export function payload(token: string, mode: BackendMode, bodyBytes: number): Buffer {
  return Buffer.concat([Buffer.from(token + mode), Buffer.alloc(bodyBytes, token)]);
}

/** Checks a stream against the payload that its own first bytes announce. */
export class PayloadCheck {
  isSound = true;
  receivedBytes = 0;
  #header = Buffer.alloc(0);
  #period: Buffer | undefined;

  get mode(): BackendMode | undefined {
    return this.#period === undefined
      ? undefined
      : (this.#header.toString('latin1', TOKEN_BYTES, HEADER_BYTES) as BackendMode);
  }

  add(chunk: Buffer): void {
    let body = chunk;
    if (this.#period === undefined) {
      const missing = HEADER_BYTES - this.#header.length;
      this.#header = Buffer.concat([this.#header, chunk.subarray(0, missing)]);
      body = chunk.subarray(missing);
      if (this.#header.length === HEADER_BYTES) this.#begin();
    }
    const at = Math.max(0, this.receivedBytes - HEADER_BYTES) % TOKEN_BYTES;
    this.receivedBytes += chunk.length;
    if (this.#period !== undefined && !matches(body, this.#period, at)) this.isSound = false;
  }

  #begin(): void {
    const token = this.#header.toString('latin1', 0, TOKEN_BYTES);
    if (!/^[0-9a-f]{16}$/.test(token)) this.isSound = false;
    this.#period = Buffer.alloc(64 * 1024 + TOKEN_BYTES, token);
  }
}

function matches(body: Buffer, period: Buffer, at: number): boolean {
  for (let from = 0; from < body.length; ) {
    const length = Math.min(64 * 1024, body.length - from);
    const start = (at + from) % TOKEN_BYTES;
    if (body.compare(period, start, start + length, from, from + length) !== 0) return false;
    from += length;
  }
  return true;
}
