import type { Clock } from './clock.ts';

/** How long the event loop may be held up: a connection of the portable engine, or a scrape, waits meanwhile. */
const SLICE_MS = 5;

/**
 * Calls `step` until it answers `false`, with a turn of the event loop in between whenever a slice of time is used up. The
 * first slice runs before this returns.
 */
export async function inSlices(clock: Clock, step: () => boolean): Promise<void> {
  for (;;) {
    const endMs = clock.now() + SLICE_MS;
    do {
      if (!step()) return;
    } while (clock.now() < endMs);
    await nextTurn(clock);
  }
}

/** Resolves in another turn of the event loop. */
export function nextTurn(clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    clock.after(0, resolve);
  });
}
