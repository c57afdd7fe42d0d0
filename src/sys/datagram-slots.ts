import { IOVEC, MMSGHDR } from './abi.ts';
import { Memory } from './memory.ts';

/** No UDP datagram is longer: its length field has 16 bits. */
const MAX_DATAGRAM_BYTES = 65_535;

/*
 * One slot per datagram, laid out once and used for ever, so that a datagram costs no allocation:
 *
 *   mmsghdr[i] ─┬─ name ────► names[i]      32 bytes   the client
 *               ├─ vector ──► iovec[i] ───► data[i]    the datagram
 *               └─ control ─► controls[i]  64 bytes   IP_PKTINFO: the local address that the client used
 *
 * Data lie a little more than 64 KiB apart. At exactly 64 KiB the beginnings of all datagrams would share one set of
 * the processor's cache.
 */
export const DATA_STRIDE = 65_536 + 192;
export const NAME_STRIDE = 32;
export const CONTROL_STRIDE = 64;
export const NAME_WORDS = NAME_STRIDE / 4;
export const CONTROL_WORDS = CONTROL_STRIDE / 4;
export const HEADER_WORDS = MMSGHDR.size / 4;
export const VECTOR_WORDS = IOVEC.size / 4;

/** Holds every part of a slot table: the kernel follows its pointers, which keep nothing alive. */
export class Slots {
  readonly headers: Memory;
  readonly headerWords: Int32Array;
  readonly vectorWords: Int32Array;
  readonly names: Memory;
  readonly nameWords: Int32Array;
  readonly controlWords: Int32Array;
  readonly #vectors: Memory;
  readonly #controls: Memory;
  readonly #data: Memory;

  /** With `isAddressed` the kernel is told, or tells, peer and local address; without it, only data. */
  constructor({ capacity, data, isAddressed }: { capacity: number; data: Memory; isAddressed: boolean }) {
    this.headers = new Memory(capacity * MMSGHDR.size);
    this.headerWords = this.headers.words();
    this.#vectors = new Memory(capacity * IOVEC.size);
    this.vectorWords = this.#vectors.words();
    this.names = new Memory(capacity * NAME_STRIDE);
    this.nameWords = this.names.words();
    this.#controls = new Memory(capacity * CONTROL_STRIDE);
    this.controlWords = this.#controls.words();
    this.#data = data;
    for (let i = 0; i < capacity; i++) this.#layOut(i, isAddressed);
  }

  /** Makes header `i` speak of the data of `count` slots from `first` on. */
  cover(i: number, first: number, count: number): void {
    const header = i * HEADER_WORDS;
    setPointer(
      this.headerWords,
      header + MMSGHDR.vectors / 4,
      this.#vectors.at(first * IOVEC.size, count * IOVEC.size),
    );
    this.headerWords[header + MMSGHDR.vectorCount / 4] = count;
  }

  setLength(slot: number, bytes: number): void {
    this.vectorWords[slot * VECTOR_WORDS + IOVEC.length / 4] = bytes;
  }

  /** What the kernel received with header `i`. */
  bytes(i: number): number {
    return this.headerWords[i * HEADER_WORDS + MMSGHDR.bytes / 4] as number;
  }

  #layOut(i: number, isAddressed: boolean): void {
    setPointer(this.vectorWords, i * VECTOR_WORDS, this.#data.at(i * DATA_STRIDE, MAX_DATAGRAM_BYTES));
    this.setLength(i, MAX_DATAGRAM_BYTES);
    this.cover(i, i, 1);
    if (!isAddressed) return;
    const header = i * HEADER_WORDS;
    setPointer(this.headerWords, header + MMSGHDR.name / 4, this.names.at(i * NAME_STRIDE, NAME_STRIDE));
    setPointer(this.headerWords, header + MMSGHDR.control / 4, this.#controls.at(i * CONTROL_STRIDE, CONTROL_STRIDE));
  }
}

export function slotData(capacity: number): Memory {
  return new Memory(capacity * DATA_STRIDE);
}

/** Low word first. An address has less than 53 bits, and storing takes each half modulo 2^32. */
function setPointer(words: Int32Array, at: number, address: number): void {
  words[at] = address % 2 ** 32;
  words[at + 1] = address / 2 ** 32;
}
