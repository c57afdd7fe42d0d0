import { type Report, STATUS } from './protocol.ts';

/** How often to ask. */
const ASK_MS = 100;

/** How the main thread writes it: in hundredths of a core. */
export const IDLE_CORE = 100;

/**
 * How many cores of the machine have nothing to do, as the main thread tells. A worker does not look by itself: on a
 * large machine the kernel takes milliseconds to say it.
 */
export class ToldIdleCores {
  readonly #status: Int32Array;
  readonly #report: (report: Report) => void;
  #askedMs = Number.NEGATIVE_INFINITY;

  /** `status`: the worker's row. */
  constructor(status: Int32Array, report: (report: Report) => void) {
    this.#status = status;
    this.#report = report;
  }

  /** What was told last; 0 when the question before this one is more than `maxMs` ago. */
  at(nowMs: number, maxMs: number): number {
    const passedMs = nowMs - this.#askedMs;
    if (passedMs > maxMs) this.#status[STATUS.idleCores] = 0;
    if (passedMs >= ASK_MS) {
      this.#askedMs = nowMs;
      this.#report({ kind: 'ask-idle-cores' });
    }
    return (this.#status[STATUS.idleCores] as number) / IDLE_CORE;
  }
}
