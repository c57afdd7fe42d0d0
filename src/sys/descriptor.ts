import { calls, result } from './calls.ts';
import { Memory } from './memory.ts';

const F_SETFL = 4;
const F_DUPFD_CLOEXEC = 1030;
const EFD_CLOEXEC = 0o2000000;
const EFD_NONBLOCK = 0o4000;

/**
 * Linux frees the number before anything can fail. So do not retry after EINTR: that might close a descriptor that
 * another thread has just opened.
 */
export function close(fd: number): number {
  return result(calls.close(fd));
}

/** Bytes read into `memory` at `offset`, or a negative errno. */
export function read(fd: number, memory: Memory, offset: number, length: number): number {
  return result(calls.read(fd, memory.at(offset, length), length));
}

/** Bytes written from the start of `memory`, or a negative errno. */
export function write(fd: number, memory: Memory, length: number): number {
  return result(calls.write(fd, memory.at(0, length), length));
}

/** A counter; its descriptor is readable while it is not 0. Or a negative errno. */
export function eventfd(): number {
  return result(calls.eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

/** 1: an eventfd takes and gives 64 bits. */
const ONE = new Memory(8);
ONE.bytes.writeBigUInt64LE(1n);

/** Adds 1 to an eventfd, so that it is readable. */
export function signal(fd: number): void {
  write(fd, ONE, ONE.length);
}

/** The lowest free number, for the same open file; or a negative errno. */
export function duplicate(fd: number): number {
  return result(calls.fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/**
 * The lowest free number, which the next descriptor of this process gets; or a negative errno. All numbers below are in
 * use.
 */
export function lowestFreeDescriptor(): number {
  const fd = duplicate(0);
  if (fd >= 0) close(fd);
  return fd;
}

/**
 * Sets the status flags of an open file, such as O_NONBLOCK, in all processes that share it. 0, or a negative errno.
 */
export function setStatusFlags(fd: number, flags: number): number {
  return result(calls.fcntl(fd, F_SETFL, flags));
}

const O_NONBLOCK = 0o4000;
const O_CLOEXEC = 0o2000000;
const F_SETPIPE_SZ = 1031;
const F_GETPIPE_SZ = 1032;
const SPLICE_F_MOVE = 1;
const SPLICE_F_NONBLOCK = 2;

const ends = new Memory(8);
const endWords = ends.words();

/** Puts the read end and the write end of a new pipe into `fds`. 0, or a negative errno. */
export function pipe(fds: Int32Array): number {
  const status = result(calls.pipe2(ends.address, O_NONBLOCK | O_CLOEXEC));
  if (status === 0) fds.set(endWords);
  return status;
}

/**
 * Returns the capacity of the pipe afterwards, in bytes. It does not change when `bytes` exceeds the user's limits
 * (`fs.pipe-max-size`; without privileges also `fs.pipe-user-pages-soft` for all pipes of a user).
 */
export function resizePipe(fd: number, bytes: number): number {
  const resized = result(calls.fcntl(fd, F_SETPIPE_SZ, bytes));
  return resized >= 0 ? resized : result(calls.fcntl(fd, F_GETPIPE_SZ, 0));
}

/** Moves bytes between a socket and a pipe in the kernel. Bytes moved (0 is the end), or a negative errno. */
export function splice(from: number, to: number, length: number): number {
  return result(calls.splice(from, 0, to, 0, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
}

const POLLIN = 1;

/** `struct pollfd`: descriptor, then 16 bits each of requested and returned events. */
const one = new Memory(8);

/** Waits until `fd` is readable. 1, 0 after `timeoutMs`, or a negative errno. */
export function waitReadable(fd: number, timeoutMs: number): number {
  one.bytes.writeInt32LE(fd);
  one.bytes.writeInt32LE(POLLIN, 4);
  return result(calls.poll(one.address, 1, timeoutMs));
}
