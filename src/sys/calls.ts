import { constants } from 'node:os';
import { promisify } from 'node:util';
import koffi from 'koffi';

// Node's executables need glibc, too.
const libc = koffi.load('libc.so.6');

/** As many numbers as the prototype has parameters. */
type Numbers<Prototype> = Prototype extends `${string},${infer Rest}` ? [number, ...Numbers<Rest>] : [number];
type Call<Prototype> = (...args: Numbers<Prototype>) => number;

function once<Prototype extends string>(prototype: Prototype): Call<Prototype> {
  return libc.func(prototype) as Call<Prototype>;
}

/** For calls that are to be made again when a signal came before they did anything. */
function repeated<Prototype extends string>(prototype: Prototype): Call<Prototype> {
  const call = once(prototype);
  return (...args) => {
    for (;;) {
      const returned = call(...args);
      if (returned !== -1 || koffi.errno() !== constants.errno.EINTR) return returned;
    }
  };
}

/** For calls that may take long: on a thread of Node's pool. Libc's return value; the errno stays in that thread. */
function aside<Prototype extends string>(prototype: Prototype) {
  return promisify(libc.func(prototype).async) as (...args: Numbers<Prototype>) => Promise<number>;
}

/**
 * All functions of libc that this program calls (docs/security.md). All arguments are integers: a pointer is the
 * `address` of a {@link Memory}, so koffi need not look it up. `fcntl` and `ioctl` are declared without their ellipsis:
 * on x86-64 and arm64 Linux an integer is passed in the same register either way.
 */
export const calls = {
  _exit: once('void _exit(int)'),
  accept4: repeated('int accept4(int, int64_t, int64_t, int)'),
  bind: once('int bind(int, int64_t, int)'),
  close: once('int close(int)'),
  connect: once('int connect(int, int64_t, int)'),
  epoll_create1: once('int epoll_create1(int)'),
  epoll_ctl: once('int epoll_ctl(int, int, int, int64_t)'),
  epoll_wait: once('int epoll_wait(int, int64_t, int, int)'),
  eventfd: once('int eventfd(unsigned int, int)'),
  execve: once('int execve(int64_t, int64_t, int64_t)'),
  fcntl: once('int fcntl(int, int, int)'),
  getpeername: once('int getpeername(int, int64_t, int64_t)'),
  getsockname: once('int getsockname(int, int64_t, int64_t)'),
  getsockopt: once('int getsockopt(int, int, int, int64_t, int64_t)'),
  ioctl: once('int ioctl(int, unsigned long, int64_t)'),
  listen: once('int listen(int, int)'),
  pipe2: once('int pipe2(int64_t, int)'),
  poll: once('int poll(int64_t, unsigned long, int)'),
  read: repeated('int64_t read(int, int64_t, size_t)'),
  recv: repeated('int64_t recv(int, int64_t, size_t, int)'),
  recvmmsg: repeated('int recvmmsg(int, int64_t, unsigned int, int, int64_t)'),
  recvmsg: once('int64_t recvmsg(int, int64_t, int)'),
  send: repeated('int64_t send(int, int64_t, size_t, int)'),
  sendmmsg: repeated('int sendmmsg(int, int64_t, unsigned int, int)'),
  sendmsg: repeated('int64_t sendmsg(int, int64_t, int)'),
  setsockopt: once('int setsockopt(int, int, int, int64_t, int)'),
  shutdown: once('int shutdown(int, int)'),
  socket: once('int socket(int, int, int)'),
  socketpair: once('int socketpair(int, int, int, int64_t)'),
  splice: repeated('int64_t splice(int, int64_t, int, int64_t, size_t, unsigned int)'),
  write: repeated('int64_t write(int, int64_t, size_t)'),
};

/** The same on another thread. */
export const callsAside = {
  malloc_trim: aside('int malloc_trim(size_t)'),
  recv: aside('int64_t recv(int, int64_t, size_t, int)'),
  send: aside('int64_t send(int, int64_t, size_t, int)'),
};

/**
 * Turns libc's return value into a result: the value, or for -1 the negative errno. Nothing throws on the data path;
 * callers that expect no failure use `must` of sys-error.ts.
 */
export function result(returned: number): number {
  return returned === -1 ? -koffi.errno() : returned;
}

/** The address of a buffer's bytes. */
export function addressOf(buffer: Buffer): number {
  return Number(koffi.address(buffer));
}
