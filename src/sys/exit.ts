import { bind } from './libc.ts';

const exit = bind('void _exit(int status)');

/** Ends this process in the kernel, with all its threads, whatever they do: nothing of Node or of libc runs any more. */
export function exitNow(code: number): void {
  exit(code);
}
