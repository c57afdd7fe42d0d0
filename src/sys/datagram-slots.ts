import { CMSGHDR, IOVEC, Memory, MMSGHDR } from './memory.ts';
import { EINVAL, EIO, EMSGSIZE } from './sys-error.ts';

/** No UDP datagram is longer: its length field has 16 bits. */
export const MAX_DATAGRAM_BYTES = 65_535;

/*
 * One slot per datagram, laid out once and reused, so that a datagram costs no allocation:
 *
 *   mmsghdr[i] ─┬─ name ────► names[i]      32 bytes   the client
 *               ├─ vector ──► iovec[i] ───► data[i]    the datagram
 *               └─ control ─► controls[i]  64 bytes   IP_PKTINFO: the local address that the client used
 *
 * The data are a little more than 64 KiB apart. At exactly 64 KiB, the starts of all datagrams would share one set of
 * the processor's cache.
 */
export const DATA_STRIDE = 65_536 + 192;
export const NAME_STRIDE = 32;
export const CONTROL_STRIDE = 64;
export const NAME_WORDS = NAME_STRIDE / 4;
export const CONTROL_WORDS = CONTROL_STRIDE / 4;
export const HEADER_WORDS = MMSGHDR.size / 4;
const VECTOR_WORDS = IOVEC.size / 4;

/** Owns all parts of a slot table: the kernel follows its pointers, which keep nothing alive. */
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

  /** `isAddressed`: headers include peer and local address. */
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

  /** Makes header `i` point to the data of `count` slots from `first` on. */
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

  /** The number of bytes that the kernel received with header `i`. */
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

/** Low word first. An address has fewer than 53 bits, and storing a number takes it modulo 2^32. */
function setPointer(words: Int32Array, at: number, address: number): void {
  words[at] = address % 2 ** 32;
  words[at + 1] = address / 2 ** 32;
}

/*
 * A run: datagrams of one size to one destination; the last may be shorter. With UDP_SEGMENT (Linux 4.18) the kernel
 * takes them through its network stack as one packet and splits it at the end, for a third of the cost.
 */

const SOL_UDP = 17;
const UDP_SEGMENT = 103;

/** The control message that requests it: a header and the size in 16 bits, padded. */
export const SEGMENT_CONTROL_BYTES = 24;

/** The kernel's UDP_MAX_SEGMENTS in older versions. */
const MAX_COUNT = 64;
const MAX_BYTES = 65_000;

/** What fits into a packet on a common link: a segment must not need fragments. */
const MAX_SEGMENT_BYTES = 1472;

/** Old kernels, links with a small MTU, IPsec: there datagrams must be sent one by one. */
const CANNOT_SEGMENT: ReadonlySet<number> = new Set([EINVAL, EIO, EMSGSIZE]);

export function cannotSegment(result: number): boolean {
  return CANNOT_SEGMENT.has(-result);
}

/** How many of the datagrams from `first` to `end` - 1 form a run; at least 1. */
export function runLength(first: number, end: number, sizeOf: (i: number) => number): number {
  const size = sizeOf(first);
  if (size === 0 || size > MAX_SEGMENT_BYTES) return 1;
  let count = 1;
  for (let bytes = size; first + count < end && count < MAX_COUNT; count++) {
    const next = sizeOf(first + count);
    bytes += next;
    if (next === 0 || next > size || bytes > MAX_BYTES) break;
    if (next < size) return count + 1;
  }
  return count;
}

export function writeSegmentControl(words: Int32Array, at: number, size: number): void {
  words[at + CMSGHDR.length / 4] = CMSGHDR.size + 2;
  words[at + CMSGHDR.length / 4 + 1] = 0;
  words[at + CMSGHDR.level / 4] = SOL_UDP;
  words[at + CMSGHDR.type / 4] = UDP_SEGMENT;
  words[at + CMSGHDR.size / 4] = size;
  words[at + CMSGHDR.size / 4 + 1] = 0;
}
