import type { Log, LogFields } from '../util/log.ts';

interface Report {
  /** What makes it the same fault as before, whatever its message says this time. */
  readonly key: string;
  readonly message: string;
  readonly fields: LogFields;
}

/** Enough to see what is going on; a fault of ten thousand Services must not become ten thousand lines. */
const MAX_LINES = 20;

/** Warns of a lasting fault once: again only when it comes back after it had gone. */
export class ChangedReports {
  readonly #log: Log;
  readonly #known = new Map<string, ReadonlySet<string>>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** `reports` is everything that is wrong now in respect of `topic`. */
  report(topic: string, reports: readonly Report[]): void {
    const known = this.#known.get(topic);
    const now = new Map(reports.map((report) => [report.key, report]));
    const fresh = [...now].filter(([key]) => !known?.has(key)).map(([, report]) => report);
    for (const { message, fields } of fresh.slice(0, MAX_LINES)) this.#log.warn(message, fields);
    if (fresh.length > MAX_LINES)
      this.#log.warn('More of the same kind are not shown', { more: fresh.length - MAX_LINES });
    this.#known.set(topic, new Set(now.keys()));
  }
}
