import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';

const pollC = bind('int poll(int64_t, unsigned long, int)');

const POLLIN = 1;

/** `struct pollfd`: descriptor, then 16 bits each of what is asked and what is told. */
const one = new Memory(8);

/** Waits until `fd` is readable. 1, 0 when `timeoutMs` have passed, or a negative errno. */
export function waitReadable(fd: number, timeoutMs: number): number {
  one.bytes.writeInt32LE(fd);
  one.bytes.writeInt32LE(POLLIN, 4);
  return result(pollC(one.address, 1, timeoutMs));
}
