import { isSea } from 'node:sea';
import { systemClock } from '../util/system-clock.ts';
import { endProcess } from './process.ts';

/** The program does nothing but wait for its end when this is its argument 0. */
export const STAND_IN = 'kube-userspace-proxy: handed over';

const LONG_MS = 2 ** 31 - 1;

/**
 * For process 1 of a container, which the container ends with, when another process has all that it had: holds that
 * up until the container is to end. Nothing may be left open here, or the other's closing would close nothing. Returns
 * where that fails.
 */
export async function becomeStandIn(): Promise<void> {
  const { replaceProcess } = await import('../sys/exec.ts');
  const source = isSea() ? [] : [...process.execArgv, process.argv[1] as string];
  replaceProcess('/proc/self/exe', [STAND_IN, ...source]);
}

export function standIn(): void {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void endProcess(0));
  const wait = () => void systemClock.after(LONG_MS, wait);
  wait();
}
