import { readFileSync } from 'node:fs';

interface OpenOutput {
  readonly fd: number;
  /** Of the open file, which is everybody's who has it open. */
  readonly flags: number;
}

/**
 * Before anything is written: Node makes a pipe or a socket one that does not block, and what runs next in the same
 * pipeline would lose what it writes. `process.exit` sets it right again, `_exit` does not.
 */
const outputs = [1, 2].flatMap((fd): OpenOutput[] => {
  const flags = flagsOf(fd);
  return flags === undefined ? [] : [{ fd, flags }];
});

/**
 * Ends this process with this code, and for certain; handlers of `exit` run before.
 *
 * `process.exit` does not always return: it joins V8's threads, and one of them that compiles may be waiting for the
 * main thread to collect garbage (nodejs/node#54918, #64274). A proxy that hangs so serves nobody, holds its ports, and
 * is not started again. See ADR 15.
 */
export async function endProcess(code: number): Promise<never> {
  // Without koffi it fails, and `process.exit` does the same.
  await restoreOutputs().catch(() => {});
  return leaveProcess(code);
}

/** The same for one whose successor has its output by now, and counts on it not to block. */
export async function leaveProcess(code: number): Promise<never> {
  try {
    // Not before, as the portable engine runs without koffi.
    const { exitNow } = await import('../sys/descriptor.ts');
    process.emit('exit', code);
    exitNow(code);
  } catch {
    // What is left is the next best.
  }
  process.exit(code);
}

async function restoreOutputs(): Promise<void> {
  const { setStatusFlags } = await import('../sys/descriptor.ts');
  for (const { fd, flags } of outputs) {
    if (flagsOf(fd) !== flags) setStatusFlags(fd, flags);
  }
}

/** `undefined` for one that is not open. */
function flagsOf(fd: number): number | undefined {
  try {
    const octal = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1];
    return octal === undefined ? undefined : Number.parseInt(octal, 8);
  } catch {
    return undefined;
  }
}
