import { setTimeout as sleep } from 'node:timers/promises';

/** Far beyond the time that anything takes, even on a busy machine. */
const PATIENCE_MS = 60_000;

/** Waits for a condition that depends on real I/O. */
export async function until(what: string, condition: () => boolean, timeoutMs = PATIENCE_MS): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`);
    await sleep(2);
  }
}

/** Lets everything happen that needs neither I/O nor a clock. */
export async function settle(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Lets pending promises take their turns; neither time nor I/O goes on. */
export async function microtasks(turns = 20): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await Promise.resolve();
}
