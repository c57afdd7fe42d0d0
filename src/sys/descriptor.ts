import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';

const closeC = bind('int close(int)');
const readC = bind('int64_t read(int, int64_t, size_t)');
const writeC = bind('int64_t write(int, int64_t, size_t)');
const fcntlC = bind('int fcntl(int, int, int)');
const eventfdC = bind('int eventfd(unsigned int, int)');
const getrlimitC = bind('int getrlimit(int, int64_t)');

const F_SETFL = 4;
const F_DUPFD_CLOEXEC = 1030;
const EFD_CLOEXEC = 0o2000000;
const EFD_NONBLOCK = 0o4000;
const RLIMIT_NOFILE = 7;

/**
 * The number is free for anybody afterwards, also when this fails: Linux frees it before anything can go wrong, so
 * trying again after EINTR would close somebody else's.
 */
export function close(fd: number): number {
  return result(closeC(fd));
}

/** Bytes read into `memory` at `offset`, or a negative errno. */
export function read(fd: number, memory: Memory, offset: number, length: number): number {
  return result(readC(fd, memory.at(offset, length), length));
}

/** Bytes written from the start of `memory`, or a negative errno. */
export function write(fd: number, memory: Memory, length: number): number {
  return result(writeC(fd, memory.at(0, length), length));
}

/** A counter to wait on: readable while it is not 0. */
export function eventfd(): number {
  return result(eventfdC(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

/**
 * The number that the next descriptor of this process would get, or a negative errno. The kernel gives out the lowest
 * free one, so every number below it is taken.
 */
export function lowestFreeDescriptor(): number {
  const fd = result(fcntlC(0, F_DUPFD_CLOEXEC, 0));
  if (fd >= 0) close(fd);
  return fd;
}

/** Sets the status flags of an open file, such as O_NONBLOCK, for everybody who has it open. 0, or a negative errno. */
export function setStatusFlags(fd: number, flags: number): number {
  return result(fcntlC(fd, F_SETFL, flags));
}

/** How many descriptors this process may have (the soft limit, which Node raises to the hard one at start). */
export function descriptorLimit(): number {
  const limit = new Memory(16);
  if (result(getrlimitC(RLIMIT_NOFILE, limit.address)) < 0) return 1024;
  return Number(limit.bytes.readBigUInt64LE(0));
}
