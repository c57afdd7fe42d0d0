import { calls, result } from '../src/sys/calls.ts';
import { IOVEC, Memory, MMSGHDR } from '../src/sys/memory.ts';
import { SOCKET_ADDRESS_BYTES } from '../src/sys/socket.ts';

const MSG_WAITFORONE = 0x10000;
const DATA_BYTES = 2048;
const NAME_BYTES = 32;

/** Datagrams on their way in and out again, many with one system call. */
export interface Datagrams {
  readonly data: Memory;
  /** What a socket for them needs. */
  prepare(fd: number): void;
  /** How many came, or a negative errno. Waits for the first if the socket does. */
  receive(fd: number): number;
  /** Where the `i`-th datagram begins in {@link data}. */
  offset(i: number): number;
  setLength(i: number, bytes: number): void;
  /** Sends the first `count`. How many the kernel took, or a negative errno. */
  send(fd: number, count: number): number;
}

/**
 * Datagrams that go back as they came, many with one call: what generator and server cost is taken from the proxies'
 * processor time, so it must be little.
 */
export class DatagramBatch implements Datagrams {
  readonly data: Memory;
  readonly #capacity: number;
  readonly #headers: Memory;
  readonly #headerWords: Int32Array;
  readonly #vectors: Memory;
  readonly #vectorWords: Int32Array;
  readonly #names: Memory;
  /** Slots whose lengths the kernel or the caller has overwritten. */
  #used: number;

  /** `isAddressed`: for a socket that is not connected; each datagram goes back to its sender. */
  constructor(capacity: number, isAddressed: boolean) {
    this.#capacity = capacity;
    this.#used = capacity;
    this.data = new Memory(capacity * DATA_BYTES);
    this.#headers = new Memory(capacity * MMSGHDR.size);
    this.#headerWords = this.#headers.words();
    this.#vectors = new Memory(capacity * IOVEC.size);
    this.#vectorWords = this.#vectors.words();
    this.#names = new Memory(capacity * NAME_BYTES);
    for (let i = 0; i < capacity; i++) {
      const header = i * MMSGHDR.size;
      pointer(this.#vectors, i * IOVEC.size, this.data.at(i * DATA_BYTES, DATA_BYTES));
      pointer(this.#headers, header + MMSGHDR.vectors, this.#vectors.at(i * IOVEC.size, IOVEC.size));
      pointer(this.#headers, header + MMSGHDR.vectorCount, 1);
      if (isAddressed) pointer(this.#headers, header + MMSGHDR.name, this.#names.at(i * NAME_BYTES, NAME_BYTES));
    }
  }

  prepare(): void {}

  receive(fd: number): number {
    for (let i = 0; i < this.#used; i++) {
      this.#vectorWords[(i * IOVEC.size + IOVEC.length) / 4] = DATA_BYTES;
      this.#headerWords[(i * MMSGHDR.size + MMSGHDR.nameLength) / 4] = SOCKET_ADDRESS_BYTES;
    }
    const count = result(calls.recvmmsg(fd, this.#headers.address, this.#capacity, MSG_WAITFORONE, 0));
    this.#used = Math.max(count, 0);
    for (let i = 0; i < count; i++) this.setLength(i, this.#headerWords[(i * MMSGHDR.size + MMSGHDR.bytes) / 4]!);
    return count;
  }

  offset(i: number): number {
    return i * DATA_BYTES;
  }

  setLength(i: number, bytes: number): void {
    this.#used = Math.max(this.#used, i + 1);
    this.#vectorWords[(i * IOVEC.size + IOVEC.length) / 4] = bytes;
  }

  send(fd: number, count: number): number {
    return result(calls.sendmmsg(fd, this.#headers.address, count, 0));
  }
}

function pointer(memory: Memory, offset: number, value: number): void {
  memory.bytes.writeBigUInt64LE(BigInt(value), offset);
}
