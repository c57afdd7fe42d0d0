import { setTimeout as sleep } from 'node:timers/promises';

/** Far beyond the time that anything takes, even on a busy machine. */
export const PATIENCE_MS = 60_000;

/** Polls until the answer is neither `undefined` nor `false`, and returns it. */
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
