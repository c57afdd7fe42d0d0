import type { EndpointSlice, Endpoints } from './endpoint.ts';
import type { Service, ServiceKey } from './service.ts';

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

/** One object's new state; `undefined` means it is gone. The last event for a key wins. */
export type SourceEvent =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service | undefined }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints | undefined }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice | undefined };

/** How fresh what the API server told us is. Times are readings of `Clock.now()`. */
export interface ApiStatus {
  /** Every kind of object is being followed right now. A connection that died unnoticed still counts, for 35 s at most. */
  readonly connected: boolean;
  /** The last byte from the server, whatever it said; `undefined` before the first. */
  readonly lastContactAt: number | undefined;
  /** When the last of the kinds was listed for the first time; `undefined` until then. */
  readonly listedAt: number | undefined;
  /** For how long changes may have been missed, in milliseconds: since the state was last known to be the server's. 0 while connected. */
  readonly staleForMs: number;
}
