import { calls, result } from './calls.ts';
import { Memory } from './memory.ts';

/**
 * Has this process run another program, with no environment: its threads are gone, and so is all that it had open but
 * what programs inherit. `args` begin with argument 0. Returns a negative errno where that fails.
 */
export function replaceProcess(file: string, args: readonly string[]): number {
  const path = cString(file);
  const strings = args.map(cString);
  const list = new Memory(8 * (args.length + 1));
  for (const [index, { address }] of strings.entries()) list.bytes.writeBigUInt64LE(BigInt(address), 8 * index);
  return result(calls.execve(path.address, list.address, new Memory(8).address));
}

function cString(text: string): Memory {
  return Memory.of(Buffer.from(`${text}\0`));
}
