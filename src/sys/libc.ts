import { promisify } from 'node:util';
import koffi, { type LibraryHandle } from 'koffi';

/** Every call goes by integers: a pointer is the `address` of a {@link Memory}, which saves koffi from looking it up. */
export type Native = (...args: readonly number[]) => number;

const MUSL_NAMES: Partial<Record<NodeJS.Architecture, string>> = { x64: 'x86_64', arm64: 'aarch64' };

const libc = load();

/**
 * Binds one function, declared in C with pointers as `int64_t`. `fcntl` and `ioctl` are declared without their ellipsis:
 * on x86-64 and arm64 Linux an integer is passed in the same register either way.
 */
export function bind(signature: string): Native {
  return libc.func(signature) as Native;
}

/**
 * As {@link bind}, for calls that may take long: they run on a thread of Node's pool. Resolves with what libc gave; the
 * errno stays in that thread.
 */
export function bindAsync(signature: string): (...args: readonly number[]) => Promise<number> {
  return promisify(libc.func(signature).async as (...args: readonly unknown[]) => void) as ReturnType<typeof bindAsync>;
}

/**
 * The one place where a return code becomes an error: what libc gave, or the negative errno where it gave -1 (as system
 * calls themselves answer). Nothing throws on the data path; whoever expects no failure uses `must` of sys-error.ts.
 */
export function result(returned: number): number {
  return returned === -1 ? -koffi.errno() : returned;
}

/** Where a buffer's bytes lie. */
export function addressOf(buffer: Buffer): number {
  return Number(koffi.address(buffer));
}

function load(): LibraryHandle {
  try {
    return koffi.load('libc.so.6');
  } catch (glibcError) {
    const musl = MUSL_NAMES[process.arch];
    if (musl === undefined) throw glibcError;
    return koffi.load(`libc.musl-${musl}.so.1`);
  }
}
