import type { SourceEvent } from './source-event.ts';

export interface SourceSink {
  /** Events that belong together (one file, one list) come in one call and take effect together. Never throws. */
  apply(events: readonly SourceEvent[]): void;
  /**
   * Everything that exists has been delivered once. Nothing is programmed before that: a half-known cluster would
   * take rules and endpoints away. Called once.
   */
  synced(): void;
}

/** Where Services and endpoints come from: manifest files, an API server. Already validated, already filtered. */
export interface ServiceSource {
  /** Resolves when watching has begun. Rejects only for what the user must mend (a path that does not exist). */
  start(sink: SourceSink): Promise<void>;
  stop(): Promise<void>;
}
