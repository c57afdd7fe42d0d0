import type { Clock } from './clock.ts';

/** How long the event loop may be blocked: connections of the portable engine and scrapes wait meanwhile. */
const SLICE_MS = 5;

/** Resolves after `ms`, at once when `ms` is not positive, or when aborted: check the signal afterwards. */
export function sleep(ms: number, clock: Clock, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted || ms <= 0) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = () => {
      timer.cancel();
      signal?.removeEventListener('abort', wake);
      resolve();
    };
    const timer = clock.after(ms, wake);
    signal?.addEventListener('abort', wake);
  });
}

/** Resolves when `isDone`, looking every 20 ms; also after `maxMs`, or when aborted. */
export async function waitUntil(
  isDone: () => boolean,
  maxMs: number,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const deadline = clock.now() + maxMs;
  while (!isDone() && !signal.aborted && clock.now() < deadline) await sleep(20, clock, signal);
}

/** Resolves in another turn of the event loop. */
export function nextTurn(clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    clock.after(0, resolve);
  });
}

/**
 * Calls `step` until it returns `false`, with a turn of the event loop in between whenever a slice of time is used up.
 * The first slice runs before this returns.
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

/** Visits each of `items` in a step of {@link inSlices}. */
export function eachInSlices<T>(clock: Clock, items: Iterable<T>, visit: (item: T) => void): Promise<void> {
  const iterator = items[Symbol.iterator]();
  return inSlices(clock, () => {
    const { done, value } = iterator.next();
    if (!done) visit(value);
    return !done;
  });
}

/** All `items`, in time slices: tens of thousands of rules take tens of milliseconds. */
export async function gathered<T>(clock: Clock, items: Iterable<T>): Promise<readonly T[]> {
  const all: T[] = [];
  await eachInSlices(clock, items, (item) => all.push(item));
  return all;
}

/** What `work` returns, which yields after each step, in time slices. */
export async function finished<T>(clock: Clock, work: Iterator<undefined, T>): Promise<T> {
  let step = work.next();
  await inSlices(clock, () => {
    if (!step.done) step = work.next();
    return !step.done;
  });
  return step.value as T;
}

/** Rejects with an error of the message `late` after `ms`. The work itself goes on, but nothing waits for it. */
export function withDeadline<T>(
  work: Promise<T>,
  { clock, ms, late }: { readonly clock: Clock; readonly ms: number; readonly late: string },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(ms, () => reject(new Error(late)));
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}

/** Rejects with the reason of the signal once it is aborted. The work itself goes on, but nothing waits for it. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** The wait after the `failures`-th failure in a row (from 1): doubles from `firstMs` up to `maxMs`. */
export function backoffMs(failures: number, { firstMs, maxMs }: { readonly firstMs: number; readonly maxMs: number }) {
  return Math.min(firstMs * 2 ** Math.min(failures - 1, 32), maxMs);
}

/**
 * Runs calls of `work` one after another, in the order of calling. A failure rejects its own call only. Gives
 * `undefined` for a call whose signal was aborted before its turn came.
 */
export function oneAtATime<Argument, Result>(
  work: (argument: Argument) => Promise<Result>,
): (argument: Argument, signal?: AbortSignal) => Promise<Result | undefined> {
  let last: Promise<unknown> = Promise.resolve();
  return (argument, signal) => {
    const result = last.then(() => (signal?.aborted ? undefined : work(argument)));
    last = result.catch(() => {});
    return result;
  };
}
