import { constants } from 'node:os';
import { promisify } from 'node:util';
import koffi from 'koffi';

/** All arguments are integers: a pointer is the `address` of a {@link Memory}, so koffi need not look it up. */
export type Native = (...args: readonly number[]) => number;

// Node's executables need glibc, too.
const libc = koffi.load('libc.so.6');

/**
 * Binds one function, declared in C with pointers as `int64_t`. `fcntl` and `ioctl` are declared without their
 * ellipsis: on x86-64 and arm64 Linux an integer is passed in the same register either way.
 */
export function bind(signature: string): Native {
  return libc.func(signature) as Native;
}

/** Like {@link bind}, for calls that are to be made again when a signal came before they did anything. */
export function bindRepeated(signature: string): Native {
  const call = bind(signature);
  return (...args) => {
    for (;;) {
      const returned = call(...args);
      if (returned !== -1 || koffi.errno() !== constants.errno.EINTR) return returned;
    }
  };
}

/**
 * Like {@link bind}, for calls that may take long: they run on a thread of Node's pool. Resolves with libc's return
 * value; the errno stays in that thread.
 */
export function bindAsync(signature: string): (...args: readonly number[]) => Promise<number> {
  return promisify(libc.func(signature).async as (...args: readonly unknown[]) => void) as ReturnType<typeof bindAsync>;
}

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
