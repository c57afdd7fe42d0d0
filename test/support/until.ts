import { setTimeout as sleep } from 'node:timers/promises';

/** Ends a wait in vain, and no other: far beyond what anything takes on a machine that does much else. */
const PATIENCE_MS = 60_000;

/** Waits for a condition that real I/O brings about; fails with what was waited for. */
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
