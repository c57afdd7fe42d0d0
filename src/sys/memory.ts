import { addressOf } from './libc.ts';

/**
 * Zeroed memory that the kernel reads and writes. It lives at least as long as this object, so whoever hands its address
 * to the kernel for longer than one call keeps the object. Never transfer its buffer to another thread: that would free
 * it here.
 */
export class Memory {
  readonly bytes: Buffer;
  readonly address: number;

  constructor(size: number) {
    // Not from Buffer's pool, whose slabs others share. An ArrayBuffer's bytes lie outside V8's heap and never move.
    this.bytes = Buffer.from(new ArrayBuffer(size));
    this.address = addressOf(this.bytes);
  }

  static of(bytes: Buffer): Memory {
    const memory = new Memory(bytes.length);
    memory.bytes.set(bytes);
    return memory;
  }

  get length(): number {
    return this.bytes.length;
  }

  /** The address of `length` bytes from `offset` on. Throws a RangeError unless all of them are inside. */
  at(offset: number, length: number): number {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.bytes.length)) {
      throw new RangeError(`${length} bytes at ${offset} are not inside a memory of ${this.bytes.length}`);
    }
    return this.address + offset;
  }

  /** The same bytes as 32-bit words in the machine's order. */
  words(): Int32Array {
    return new Int32Array(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length >> 2);
  }
}
