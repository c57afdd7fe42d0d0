import type { Problem } from '../model/capture.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { ServiceLog } from './service-log.ts';

/** A problem of ten thousand Services must not become ten thousand lines. */
const MAX_LINES = 20;

/** Warns of a lasting problem once, and again only when it comes back. */
export class ProblemLog {
  readonly #log: Log;
  readonly #lines: ServiceLog;
  #known: ReadonlySet<string> = new Set();

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#lines = new ServiceLog(log, clock);
  }

  /** `problems`: all that there are now. */
  report(problems: readonly Problem[]): void {
    const now = new Map(problems.map((problem) => [problem.key, problem]));
    const fresh = [...now].filter(([key]) => !this.#known.has(key)).map(([, problem]) => problem);
    for (const { svc, message, fields } of fresh.slice(0, MAX_LINES)) {
      if (svc === undefined) this.#log.warn(message, fields);
      else this.#lines.warn(svc, message, fields);
    }
    if (fresh.length > MAX_LINES) {
      this.#log.warn('More of the same kind are not shown', { more: fresh.length - MAX_LINES });
    }
    this.#known = new Set(now.keys());
  }
}
