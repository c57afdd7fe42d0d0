import { setTimeout as sleep } from 'node:timers/promises';

/** Ends a wait in vain, and no other: far beyond what anything takes on a machine that does much else. */
export const PATIENCE_MS = 60_000;

/** Asks again and again until the answer is neither `undefined` nor `false`; fails with what was waited for. */
export async function waitFor<T>(
  what: string,
  condition: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = PATIENCE_MS,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const answer = await condition();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`);
    await sleep(20);
  }
}
