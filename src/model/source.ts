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
  /** Resolves when watching has begun. Rejects only for mistakes of the user (a path that does not exist). */
  start(sink: SourceSink): Promise<void>;
  stop(): Promise<void>;
}

/** One object's new state; `undefined` means it is gone. The last event for a key wins. */
export type SourceEvent =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service | undefined }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints | undefined }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice | undefined };

/** How fresh our knowledge of the cluster is. Times are readings of `Clock.now()`. */
export interface ApiStatus {
  /** All kinds of objects are being watched. A connection that died unnoticed still counts, for 35 s at most. */
  readonly connected: boolean;
  /** When the server last sent anything; `undefined` before. */
  readonly lastContactAt: number | undefined;
  /** When every kind had been listed once; `undefined` until then. */
  readonly listedAt: number | undefined;
  /** How long ago the state was last known to be the server's, in milliseconds. 0 while connected. */
  readonly staleForMs: number;
}
