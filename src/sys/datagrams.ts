import { CMSGHDR, IOVEC, MMSGHDR } from './abi.ts';
import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';
import { AF_INET, SOCKET_ADDRESS_BYTES } from './socket.ts';
import { decodeAddress } from './socket-address.ts';

const recvmmsgC = bind('int recvmmsg(int, int64_t, unsigned int, int, int64_t)');
const sendmmsgC = bind('int sendmmsg(int, int64_t, unsigned int, int)');

/** No UDP datagram is longer: its length field has 16 bits. */
export const MAX_DATAGRAM_BYTES = 65_535;

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
const DATA_STRIDE = 65_536 + 192;
const NAME_STRIDE = 32;
const CONTROL_STRIDE = 64;
const NAME_WORDS = NAME_STRIDE / 4;
const CONTROL_WORDS = CONTROL_STRIDE / 4;
const HEADER_WORDS = MMSGHDR.size / 4;
const VECTOR_WORDS = IOVEC.size / 4;

/** In words of a control message. `struct in_pktinfo`: interface, local address, destination. */
const V4_LOCAL = CMSGHDR.size / 4 + 1;
/** `struct in6_pktinfo`: local address, interface. */
const V6_LOCAL = CMSGHDR.size / 4;
const V4_CONTROL_BYTES = 32;
const V6_CONTROL_BYTES = 40;

/** Holds every part of a slot table: the kernel follows its pointers, which keep nothing alive. */
class Slots {
  readonly headers: Memory;
  readonly headerWords: Int32Array;
  readonly vectors: Memory;
  readonly data: Memory;
  readonly names: Memory;
  readonly nameWords: Int32Array;
  readonly controlWords: Int32Array;
  readonly #controls: Memory;

  /** With `isAddressed` the kernel is told, or tells, peer and local address; without it, only data. */
  constructor(capacity: number, data: Memory, isAddressed: boolean) {
    this.headers = new Memory(capacity * MMSGHDR.size);
    this.headerWords = this.headers.words();
    this.vectors = new Memory(capacity * IOVEC.size);
    this.data = data;
    this.names = new Memory(capacity * NAME_STRIDE);
    this.nameWords = this.names.words();
    this.#controls = new Memory(capacity * CONTROL_STRIDE);
    this.controlWords = this.#controls.words();
    for (let i = 0; i < capacity; i++) this.#layOut(i, isAddressed);
  }

  #layOut(i: number, isAddressed: boolean): void {
    const vector = i * IOVEC.size;
    writePointer(this.vectors, vector, this.data.at(i * DATA_STRIDE, MAX_DATAGRAM_BYTES));
    writePointer(this.vectors, vector + IOVEC.length, MAX_DATAGRAM_BYTES);
    const header = i * MMSGHDR.size;
    writePointer(this.headers, header + MMSGHDR.vectors, this.vectors.at(vector, IOVEC.size));
    writePointer(this.headers, header + MMSGHDR.vectorCount, 1);
    if (!isAddressed) return;
    writePointer(this.headers, header + MMSGHDR.name, this.names.at(i * NAME_STRIDE, NAME_STRIDE));
    writePointer(this.headers, header + MMSGHDR.control, this.#controls.at(i * CONTROL_STRIDE, CONTROL_STRIDE));
  }
}

function writePointer(memory: Memory, offset: number, value: number): void {
  memory.bytes.writeBigUInt64LE(BigInt(value), offset);
}

function slotData(capacity: number): Memory {
  return new Memory(capacity * DATA_STRIDE);
}

/** How a reply finds back: the client's socket address, and a control message with the address it must leave from. */
export interface ReplyPath {
  readonly name: Int32Array;
  readonly control: Int32Array;
}

/** Datagrams of many clients, as they come in at a listening socket with {@link IP_PKTINFO} or its IPv6 twin. */
export class DatagramInbox {
  readonly capacity: number;
  readonly data: Memory;
  readonly #slots: Slots;
  /** Headers whose lengths the kernel has overwritten. */
  #used: number;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.data = slotData(capacity);
    this.#slots = new Slots(capacity, this.data, true);
    this.#used = capacity;
  }

  /** How many datagrams came, up to {@link capacity}; or a negative errno. */
  receive(fd: number): number {
    const { headers, headerWords } = this.#slots;
    for (let i = 0; i < this.#used; i++) {
      headerWords[i * HEADER_WORDS + MMSGHDR.nameLength / 4] = SOCKET_ADDRESS_BYTES;
      headerWords[i * HEADER_WORDS + MMSGHDR.controlLength / 4] = CONTROL_STRIDE;
    }
    const received = result(recvmmsgC(fd, headers.address, this.capacity, 0, 0));
    this.#used = Math.max(received, 0);
    return received;
  }

  /** Where the `i`-th datagram begins in {@link data}. */
  offset(i: number): number {
    return i * DATA_STRIDE;
  }

  bytes(i: number): number {
    return this.#slots.headerWords[i * HEADER_WORDS + MMSGHDR.bytes / 4] as number;
  }

  /** The client's address and port as a key: a number for IPv4. */
  clientKey(i: number): number | string {
    const at = i * NAME_WORDS;
    const words = this.#slots.nameWords;
    const familyAndPort = words[at] as number;
    if ((familyAndPort & 0xffff) === AF_INET) {
      return (familyAndPort >>> 16) * 2 ** 32 + ((words[at + 1] as number) >>> 0);
    }
    return `${familyAndPort} ${words[at + 2]} ${words[at + 3]} ${words[at + 4]} ${words[at + 5]} ${words[at + 6]}`;
  }

  /** The local address that the client used, as a key: a number for IPv4. */
  localKey(i: number): number | string {
    const at = i * CONTROL_WORDS;
    const words = this.#slots.controlWords;
    if (this.#isV4(i)) return words[at + V4_LOCAL] as number;
    const local = at + V6_LOCAL;
    return `${words[local]} ${words[local + 1]} ${words[local + 2]} ${words[local + 3]}`;
  }

  /** The client's IP address. */
  clientAddress(i: number): string {
    return decodeAddress(this.#slots.names.bytes.subarray(i * NAME_STRIDE, (i + 1) * NAME_STRIDE));
  }

  replyPath(i: number): ReplyPath {
    const { headerWords, nameWords, controlWords } = this.#slots;
    const isV4 = this.#isV4(i);
    const nameBytes = headerWords[i * HEADER_WORDS + MMSGHDR.nameLength / 4] as number;
    const controlBytes = isV4 ? V4_CONTROL_BYTES : V6_CONTROL_BYTES;
    const control = controlWords.slice(i * CONTROL_WORDS, i * CONTROL_WORDS + controlBytes / 4);
    // Routing chooses the interface: the way back may lead through another one than the datagram came by.
    control[isV4 ? V4_LOCAL - 1 : V6_LOCAL + 4] = 0;
    return { name: nameWords.slice(i * NAME_WORDS, i * NAME_WORDS + nameBytes / 4), control };
  }

  #isV4(i: number): boolean {
    return ((this.#slots.nameWords[i * NAME_WORDS] as number) & 0xffff) === AF_INET;
  }
}

/** Datagrams on their way to clients: received straight into the slots that they are sent from. */
export class DatagramOutbox {
  readonly capacity: number;
  readonly #incoming: Slots;
  readonly #outgoing: Slots;
  readonly #lengthWords: Int32Array;

  constructor(capacity: number) {
    const data = slotData(capacity);
    this.capacity = capacity;
    this.#incoming = new Slots(capacity, data, false);
    this.#outgoing = new Slots(capacity, data, true);
    this.#lengthWords = this.#outgoing.vectors.words();
  }

  /** Receives at a connected socket into slots `first` to `end` - 1. How many came, or a negative errno. */
  receive(fd: number, first: number, end: number): number {
    const headers = this.#incoming.headers.at(first * MMSGHDR.size, (end - first) * MMSGHDR.size);
    return result(recvmmsgC(fd, headers, end - first, 0, 0));
  }

  /** Of what was received into slot `i`. */
  bytes(i: number): number {
    return this.#incoming.headerWords[i * HEADER_WORDS + MMSGHDR.bytes / 4] as number;
  }

  /** Makes what was received into slot `i` a reply to that client. */
  direct(i: number, { name, control }: ReplyPath): void {
    const { headerWords, nameWords, controlWords } = this.#outgoing;
    headerWords[i * HEADER_WORDS + MMSGHDR.nameLength / 4] = name.length * 4;
    headerWords[i * HEADER_WORDS + MMSGHDR.controlLength / 4] = control.length * 4;
    this.#lengthWords[i * VECTOR_WORDS + IOVEC.length / 4] = this.bytes(i);
    copyWords(name, nameWords, i * NAME_WORDS);
    copyWords(control, controlWords, i * CONTROL_WORDS);
  }

  /** Sends slots `first` to `end` - 1. How many the kernel took, or a negative errno that concerns slot `first`. */
  send(fd: number, first: number, end: number): number {
    const headers = this.#outgoing.headers.at(first * MMSGHDR.size, (end - first) * MMSGHDR.size);
    return result(sendmmsgC(fd, headers, end - first, 0));
  }
}

/** A loop, for `set` costs more than copying so few. */
function copyWords(from: Int32Array, to: Int32Array, at: number): void {
  for (let i = 0; i < from.length; i++) to[at + i] = from[i] as number;
}
