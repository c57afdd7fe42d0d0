import { CMSGHDR, IOVEC, MMSGHDR } from './abi.ts';
import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';
import { MSG_NOSIGNAL, SOL_SOCKET } from './socket.ts';

const sendmsgC = bind('int64_t sendmsg(int, int64_t, int)');
const recvmsgC = bind('int64_t recvmsg(int, int64_t, int)');

const SCM_RIGHTS = 1;
const MSG_CTRUNC = 0x8;
const MSG_TRUNC = 0x20;
const MSG_DONTWAIT = 0x40;
const MSG_CMSG_CLOEXEC = 0x40000000;

/** The kernel takes no more with one message (`SCM_MAX_FD`). */
export const MAX_MESSAGE_DESCRIPTORS = 253;

const CONTROL_BYTES = CMSGHDR.size + 4 * (MAX_MESSAGE_DESCRIPTORS + 1);
const FIRST_DESCRIPTOR = CMSGHDR.size / 4;

/** Room for one message over a Unix socket: bytes, and descriptors that the receiver gets copies of. Nothing here waits. */
export class UnixMessage {
  readonly data: Memory;
  /** Of the last {@link receive}: the receiver's own from then on, closed on exec. */
  fds: readonly number[] = [];
  /** Of the last {@link receive}: bytes or descriptors are missing, the latter for want of free numbers. */
  isTruncated = false;
  readonly #header = new Memory(MMSGHDR.size);
  readonly #headerWords = this.#header.words();
  readonly #vector = new Memory(IOVEC.size);
  readonly #control = new Memory(CONTROL_BYTES);
  readonly #controlWords = this.#control.words();

  constructor(capacity: number) {
    this.data = new Memory(capacity);
    this.#header.bytes.writeBigUInt64LE(BigInt(this.#vector.address), MMSGHDR.vectors);
    this.#header.bytes.writeBigUInt64LE(BigInt(this.#control.address), MMSGHDR.control);
    this.#headerWords[MMSGHDR.vectorCount / 4] = 1;
    this.#vector.bytes.writeBigUInt64LE(BigInt(this.data.address));
  }

  /** Sends the first `length` bytes of {@link data}. Bytes sent, or a negative errno; never part of a packet. */
  send(socket: number, length: number, fds: readonly number[]): number {
    const controlBytes = fds.length === 0 ? 0 : CMSGHDR.size + 4 * fds.length;
    this.#lay(length, controlBytes);
    const words = this.#controlWords;
    words[CMSGHDR.length / 4] = controlBytes;
    words[CMSGHDR.length / 4 + 1] = 0;
    words[CMSGHDR.level / 4] = SOL_SOCKET;
    words[CMSGHDR.type / 4] = SCM_RIGHTS;
    words.set(fds, FIRST_DESCRIPTOR);
    return result(sendmsgC(socket, this.#header.address, MSG_DONTWAIT | MSG_NOSIGNAL));
  }

  /** Bytes received into {@link data} (0: the other end has been closed), or a negative errno. */
  receive(socket: number): number {
    this.#lay(this.data.length, CONTROL_BYTES);
    const received = result(recvmsgC(socket, this.#header.address, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    const flags = this.#headerWords[MMSGHDR.flags / 4] as number;
    this.fds = received > 0 ? this.#receivedDescriptors() : [];
    this.isTruncated = received > 0 && (flags & (MSG_TRUNC | MSG_CTRUNC)) !== 0;
    return received;
  }

  #lay(length: number, controlBytes: number): void {
    this.#vector.bytes.writeBigUInt64LE(BigInt(length), IOVEC.length);
    this.#headerWords[MMSGHDR.controlLength / 4] = controlBytes;
    this.#headerWords[MMSGHDR.flags / 4] = 0;
  }

  #receivedDescriptors(): readonly number[] {
    const words = this.#controlWords;
    const isRights = words[CMSGHDR.level / 4] === SOL_SOCKET && words[CMSGHDR.type / 4] === SCM_RIGHTS;
    if ((this.#headerWords[MMSGHDR.controlLength / 4] as number) < CMSGHDR.size || !isRights) return [];
    const count = ((words[CMSGHDR.length / 4] as number) - CMSGHDR.size) / 4;
    return Array.from(words.subarray(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + count));
  }
}
