import { Session } from 'node:inspector/promises';
import type { Clock } from '../util/clock.ts';

export type ProfileKind = 'cpu' | 'heap';

/** Another profile is being taken. */
export class ProfilerBusyError extends Error {
  override readonly name = 'ProfilerBusyError';
}

/**
 * V8's sampling profilers, for the main thread (control plane, and the `node` engine; not the threads of the fast one).
 * One at a time: each costs a few percent of the thread, and its samples stay in memory until it ends.
 */
export class Profiler {
  readonly #clock: Clock;
  #isBusy = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Samples for so long, or until the abort, and resolves with the profile as JSON: what Chrome's DevTools read from a
   * `.cpuprofile` or `.heapprofile` file. Rejects with {@link ProfilerBusyError}.
   */
  async profile(kind: ProfileKind, durationMs: number, signal: AbortSignal): Promise<string> {
    if (this.#isBusy) throw new ProfilerBusyError('another profile is being taken');
    this.#isBusy = true;
    const session = new Session();
    try {
      session.connect();
      const { profile } = await (kind === 'cpu'
        ? this.#cpu(session, durationMs, signal)
        : this.#heap(session, durationMs, signal));
      return JSON.stringify(profile);
    } finally {
      session.disconnect();
      this.#isBusy = false;
    }
  }

  async #cpu(session: Session, durationMs: number, signal: AbortSignal): Promise<{ readonly profile: object }> {
    await session.post('Profiler.enable');
    await session.post('Profiler.start');
    await this.#pass(durationMs, signal);
    return session.post('Profiler.stop');
  }

  async #heap(session: Session, durationMs: number, signal: AbortSignal): Promise<{ readonly profile: object }> {
    await session.post('HeapProfiler.startSampling');
    await this.#pass(durationMs, signal);
    return session.post('HeapProfiler.stopSampling');
  }

  #pass(durationMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel();
        signal.removeEventListener('abort', end);
        resolve();
      };
      const timer = this.#clock.after(durationMs, end);
      signal.addEventListener('abort', end);
    });
  }
}
