import { calls, result } from './calls.ts';
import {
  CONTROL_STRIDE,
  CONTROL_WORDS,
  DATA_STRIDE,
  HEADER_WORDS,
  NAME_STRIDE,
  NAME_WORDS,
  runLength,
  SEGMENT_CONTROL_BYTES,
  Slots,
  slotData,
  writeSegmentControl,
} from './datagram-slots.ts';
import { CMSGHDR, type Memory, MMSGHDR } from './memory.ts';
import {
  AF_INET,
  AF_INET6,
  IP_PKTINFO,
  IPPROTO_IP,
  IPPROTO_IPV6,
  IPV6_PKTINFO,
  MSG_NOSIGNAL,
  SOCKET_ADDRESS_BYTES,
  send,
} from './socket.ts';
import { decodeAddress } from './socket-address.ts';

/** In words of a control message. `struct in_pktinfo`: interface, local address, destination. */
const V4_LOCAL = CMSGHDR.size / 4 + 1;
/** `struct in6_pktinfo`: local address, interface. */
const V6_LOCAL = CMSGHDR.size / 4;
const V4_CONTROL_BYTES = 32;
const V6_CONTROL_BYTES = 40;

/** `header`: of the control message, whose data have 12 or 20 bytes. */
const REPLY_PATHS = [
  {
    family: AF_INET,
    nameBytes: 16,
    controlBytes: V4_CONTROL_BYTES,
    header: [CMSGHDR.size + 12, 0, IPPROTO_IP, IP_PKTINFO],
  },
  {
    family: AF_INET6,
    nameBytes: SOCKET_ADDRESS_BYTES,
    controlBytes: V6_CONTROL_BYTES,
    header: [CMSGHDR.size + 20, 0, IPPROTO_IPV6, IPV6_PKTINFO],
  },
] as const;

/** The way of replies: the client's socket address, and a control message with the local address to send from. */
export interface ReplyPath {
  readonly name: Int32Array;
  readonly control: Int32Array;
  /** Whether runs are sent as such; until the kernel refuses one. */
  canSegment: boolean;
}

/** Datagrams of many clients, received at a listening socket with IP_PKTINFO or IPV6_RECVPKTINFO. */
export class DatagramInbox {
  readonly capacity: number;
  readonly data: Memory;
  readonly #slots: Slots;
  /** For forwarding: header 0 covers the run that is sent. */
  readonly #outgoing: Slots;
  /** How many headers have lengths that the kernel has overwritten. */
  #used: number;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.data = slotData(capacity);
    this.#slots = new Slots({ capacity, data: this.data, isAddressed: true });
    this.#outgoing = new Slots({ capacity, data: this.data, isAddressed: true });
    this.#used = capacity;
  }

  /** The number of datagrams received, up to `atMost` of {@link capacity}; or a negative errno. */
  receive(fd: number, atMost = this.capacity): number {
    const { headers, headerWords } = this.#slots;
    for (let i = 0; i < this.#used; i++) {
      headerWords[i * HEADER_WORDS + MMSGHDR.nameLength / 4] = SOCKET_ADDRESS_BYTES;
      headerWords[i * HEADER_WORDS + MMSGHDR.controlLength / 4] = CONTROL_STRIDE;
    }
    const received = result(calls.recvmmsg(fd, headers.address, atMost, 0, 0));
    this.#used = Math.max(received, 0);
    return received;
  }

  /** Where the `i`-th datagram starts in {@link data}. */
  offset(i: number): number {
    return i * DATA_STRIDE;
  }

  bytes(i: number): number {
    return this.#slots.bytes(i);
  }

  /** Of the `i`-th datagram. */
  copy(i: number): Uint8Array {
    const offset = this.offset(i);
    // Not from Buffer's shared pool: one datagram that is kept would keep 8 KiB.
    return new Uint8Array(this.data.bytes.subarray(offset, offset + this.bytes(i)));
  }

  /** The client's address and port as a key: a number for IPv4. */
  clientKey(i: number): number | string {
    return clientKeyAt(this.#slots.nameWords, i * NAME_WORDS);
  }

  /** The local address that the client used, as a key: a number for IPv4. */
  localKey(i: number): number | string {
    return localKeyAt(this.#slots.controlWords, i * CONTROL_WORDS, this.#isV4(i));
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
    // Routing chooses the interface: replies may leave by another one than the datagram arrived at.
    control[isV4 ? V4_LOCAL - 1 : V6_LOCAL + 4] = 0;
    const name = nameWords.slice(i * NAME_WORDS, i * NAME_WORDS + nameBytes / 4);
    return { name, control, canSegment: true };
  }

  /** How many of the datagrams from `first` to `end` - 1, all from one client, can be forwarded as one run. */
  run(first: number, end: number): number {
    return runLength(first, end, (i) => this.bytes(i));
  }

  /** Sends a run of `count` datagrams from `first` on by a connected socket. Bytes sent, or a negative errno. */
  sendRun(fd: number, first: number, count: number): number {
    if (count === 1) return send(fd, this.data, this.offset(first), this.bytes(first));
    const { headers, headerWords, controlWords } = this.#outgoing;
    for (let i = first; i < first + count; i++) this.#outgoing.setLength(i, this.bytes(i));
    this.#outgoing.cover(0, first, count);
    headerWords[MMSGHDR.nameLength / 4] = 0;
    headerWords[MMSGHDR.controlLength / 4] = SEGMENT_CONTROL_BYTES;
    writeSegmentControl(controlWords, 0, this.bytes(first));
    return result(calls.sendmsg(fd, headers.address, MSG_NOSIGNAL));
  }

  #isV4(i: number): boolean {
    return isV4At(this.#slots.nameWords, i * NAME_WORDS);
  }
}

/** {@link DatagramInbox.clientKey} and {@link DatagramInbox.localKey} of the datagrams that this path answers. */
export function keysOf({ name, control }: ReplyPath): { client: number | string; local: number | string } {
  return { client: clientKeyAt(name, 0), local: localKeyAt(control, 0, isV4At(name, 0)) };
}

/** Puts the address that the client used into a socket address of this node, in words. */
export function putLocalAddress({ name, control }: ReplyPath, into: Int32Array): void {
  if (isV4At(name, 0)) into[1] = control[V4_LOCAL] as number;
  else for (let i = 0; i < 4; i++) into[2 + i] = control[V6_LOCAL + i] as number;
}

/** Whether these can be the parts of a {@link ReplyPath}. */
export function isReplyPath(name: Uint8Array, control: Uint8Array): boolean {
  if (!(name instanceof Uint8Array && control instanceof Uint8Array)) return false;
  const [names, controls] = [Buffer.from(name), Buffer.from(control)];
  return REPLY_PATHS.some(
    ({ family, nameBytes, controlBytes, header }) =>
      names.length === nameBytes &&
      controls.length === controlBytes &&
      names.readUInt16LE() === family &&
      header.every((word, i) => controls.readInt32LE(i * 4) === word),
  );
}

function isV4At(names: Int32Array, at: number): boolean {
  return ((names[at] as number) & 0xffff) === AF_INET;
}

function clientKeyAt(names: Int32Array, at: number): number | string {
  const familyAndPort = names[at] as number;
  if (isV4At(names, at)) return (familyAndPort >>> 16) * 2 ** 32 + ((names[at + 1] as number) >>> 0);
  return `${familyAndPort} ${names[at + 2]} ${names[at + 3]} ${names[at + 4]} ${names[at + 5]} ${names[at + 6]}`;
}

function localKeyAt(controls: Int32Array, at: number, isV4: boolean): number | string {
  if (isV4) return controls[at + V4_LOCAL] as number;
  const local = at + V6_LOCAL;
  return `${controls[local]} ${controls[local + 1]} ${controls[local + 2]} ${controls[local + 3]}`;
}
