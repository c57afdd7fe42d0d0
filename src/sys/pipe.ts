import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';

const pipe2C = bind('int pipe2(int64_t, int)');
const fcntlC = bind('int fcntl(int, int, int)');
const spliceC = bind('int64_t splice(int, int64_t, int, int64_t, size_t, unsigned int)');

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
  const status = result(pipe2C(ends.address, O_NONBLOCK | O_CLOEXEC));
  if (status === 0) fds.set(endWords);
  return status;
}

/**
 * The capacity that the pipe has afterwards, in bytes. It stays what it was when `bytes` is above what the user may
 * have (`fs.pipe-max-size`; without privileges all pipes of a user together `fs.pipe-user-pages-soft`).
 */
export function resizePipe(fd: number, bytes: number): number {
  const resized = result(fcntlC(fd, F_SETPIPE_SZ, bytes));
  return resized >= 0 ? resized : result(fcntlC(fd, F_GETPIPE_SZ, 0));
}

/** Moves bytes between a socket and a pipe inside the kernel. Bytes moved (0 is the end), or a negative errno. */
export function splice(from: number, to: number, length: number): number {
  return result(spliceC(from, 0, to, 0, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
}
