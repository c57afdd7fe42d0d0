import { readIfThere } from './files.ts';

/**
 * The flags of standard output and error, read before Node makes a pipe or a socket non-blocking. These flags belong to
 * the open file, so other programs of the same pipeline would lose output. `process.exit` restores them, `_exit` does
 * not.
 */
const outputs = [1, 2].map((fd) => ({ fd, flags: flagsOf(fd) }));

/**
 * Runs the `exit` handlers and ends this process.
 *
 * `process.exit` does not always end it: it joins V8's threads, and a compiling thread may be waiting for the main
 * thread to collect garbage (nodejs/node#54918, #64274). Such a proxy serves nobody, holds its ports, and is not
 * restarted. See ADR 15.
 */
export async function endProcess(code: number): Promise<never> {
  // Where koffi cannot be loaded, `process.exit` restores them.
  const descriptor = await import('../sys/descriptor.ts').catch(() => undefined);
  for (const { fd, flags } of outputs) {
    if (flags !== undefined && flagsOf(fd) !== flags) descriptor?.setStatusFlags(fd, flags);
  }
  return leaveProcess(code);
}

/** {@link endProcess}, but leaves the output non-blocking, because the successor process already uses it. */
export async function leaveProcess(code: number): Promise<never> {
  try {
    // Loaded here, because the node engine also runs where koffi's addon cannot be loaded.
    const { calls } = await import('../sys/calls.ts');
    process.emit('exit', code);
    // Ends all threads in the kernel, at once: no further exit handler of Node or libc runs.
    calls._exit(code);
  } catch {
    // The next best way follows.
  }
  process.exit(code);
}

/** `undefined` when the descriptor is not open. */
function flagsOf(fd: number): number | undefined {
  const octal = /^flags:\s*(\d+)$/m.exec(readIfThere(`/proc/self/fdinfo/${fd}`) ?? '')?.[1];
  return octal === undefined ? undefined : Number.parseInt(octal, 8);
}
