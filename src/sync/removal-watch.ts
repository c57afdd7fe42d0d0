import type { ServiceKey } from '../model/service.ts';
import type { SourceEvent } from '../model/source.ts';
import type { Log } from '../util/log.ts';

/** Says when most Services go at once: somebody means it, or has emptied a folder or a database by mistake. */
export class RemovalWatch {
  readonly #log: Log;
  readonly #known = new Set<ServiceKey>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** The events of one call of the source. */
  apply(events: readonly SourceEvent[]): void {
    const before = this.#known.size;
    let removed = 0;
    for (const { kind, key, value } of events) {
      if (kind !== 'Service') continue;
      if (value !== undefined) this.#known.add(key);
      else if (this.#known.delete(key)) removed++;
    }
    if (removed <= before / 2) return;
    this.#log.warn(
      'Most Services have been removed at once, and are not served any more; unless that was meant, put them back ' +
        'where they come from',
      { removed, left: this.#known.size },
    );
  }
}
