import { calls, result } from './calls.ts';
import { close } from './descriptor.ts';
import { CMSGHDR, IOVEC, Memory, MMSGHDR } from './memory.ts';
import {
  AF_UNIX,
  accept,
  bindTo,
  connect,
  MSG_NOSIGNAL,
  type PeerCredentials,
  peerCredentials,
  SOCK_DGRAM,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  SOL_SOCKET,
  send,
  socket,
} from './socket.ts';
import { EINVAL } from './sys-error.ts';

const MAX_PATH_BYTES = 108;

/** Where the address of a client goes, which has none. */
const nobody = new Memory(SOCKET_ADDRESS_BYTES);

/**
 * A `struct sockaddr_un`: 2 bytes of family, then the path, or `@` and a name in the abstract namespace. `undefined`
 * when it is too long.
 */
function encodeUnixAddress(path: string): Memory | undefined {
  const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : `${path}\0`);
  return name.length > MAX_PATH_BYTES ? undefined : Memory.of(Buffer.concat([Buffer.of(AF_UNIX, 0), name]));
}

/** A new socket that `use` has bound or connected to a Unix address; or a negative errno. */
function socketAt(path: string, type: number, use: (fd: number, address: Memory) => number): number {
  const address = encodeUnixAddress(path);
  if (address === undefined) return -EINVAL;
  const fd = socket(AF_UNIX, type);
  if (fd < 0) return fd;
  const status = use(fd, address);
  if (status < 0) close(fd);
  return status < 0 ? status : fd;
}

/** A new non-blocking socket that is bound to a file, which must not be there yet; or a negative errno. */
export function bindUnix(path: string, type: number): number {
  return socketAt(path, type, bindTo);
}

/** A new non-blocking socket that is connected; or a negative errno: ECONNREFUSED where nobody listens. */
export function connectUnix(path: string, type: number): number {
  return socketAt(path, type, connect);
}

/** The next connection of a listening socket; or a negative errno: EAGAIN when there is none. */
export function acceptUnix(fd: number): number {
  return accept(fd, nobody);
}

/** What `use` returns for a socket that is connected to a Unix address; or a negative errno. */
function connected<T>(path: string, type: number, use: (fd: number) => T): T | number {
  const fd = connectUnix(path, type);
  if (fd < 0) return fd;
  const used = use(fd);
  close(fd);
  return used;
}

/** Sends one datagram to a Unix socket (a path, or `@` and an abstract name). Bytes sent, or a negative errno. */
export function sendUnixDatagram(path: string, text: string): number {
  const data = Memory.of(Buffer.from(text));
  return connected(path, SOCK_DGRAM, (fd) => send(fd, data, 0, data.length));
}

/**
 * The process that listens at a Unix socket (a path, or `@` and an abstract name), according to the kernel. Or a
 * negative errno: ECONNREFUSED when none does.
 */
export function ownerOfUnixListener(path: string): PeerCredentials | number {
  return connected(path, SOCK_STREAM, peerCredentials);
}

const SCM_RIGHTS = 1;
const MSG_CTRUNC = 0x8;
const MSG_TRUNC = 0x20;
const MSG_DONTWAIT = 0x40;
const MSG_CMSG_CLOEXEC = 0x40000000;

/** The kernel's limit for one message (`SCM_MAX_FD`). */
export const MAX_MESSAGE_DESCRIPTORS = 253;

const CONTROL_BYTES = CMSGHDR.size + 4 * (MAX_MESSAGE_DESCRIPTORS + 1);
const FIRST_DESCRIPTOR = CMSGHDR.size / 4;

/**
 * A buffer for one message over a Unix socket: bytes, and descriptors that are copied to the receiver. Never blocks.
 */
export class UnixMessage {
  readonly data: Memory;
  /** The descriptors of the last {@link receive}. The receiver owns them; they are closed on exec. */
  fds: readonly number[] = [];
  /** The last {@link receive} lost bytes, or descriptors because there were no free numbers. */
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
    return result(calls.sendmsg(socket, this.#header.address, MSG_DONTWAIT | MSG_NOSIGNAL));
  }

  /** Bytes received into {@link data} (0: the other end was closed), or a negative errno. */
  receive(socket: number): number {
    this.#lay(this.data.length, CONTROL_BYTES);
    const received = result(calls.recvmsg(socket, this.#header.address, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
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
