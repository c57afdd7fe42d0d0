import type { EndpointSlice, Endpoints } from './endpoint.ts';
import type { Service, ServiceKey } from './service.ts';

export interface SourceSink {
  /** The events of one call (a file, a list) take effect together. Never throws. */
  apply(events: readonly SourceEvent[]): void;
  /**
   * Everything that exists has been delivered. Nothing is programmed before that: a half-known cluster would take
   * rules and endpoints away. Called once.
   */
  synced(): void;
}

/** Delivers validated Services and endpoints from manifest files or an API server. */
export interface ServiceSource {
  /** Resolves when watching has begun. Rejects only for mistakes of the user, such as a wrong path. */
  start(sink: SourceSink): Promise<void>;
  stop(): Promise<void>;
}

/** One object's new state; `undefined` means it is gone. The last event for a key wins. */
export type SourceEvent =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service | undefined }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints | undefined }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice | undefined };

/** Times are readings of `Clock.now()`. */
export interface ApiStatus {
  /** All kinds of objects are being watched. A dead connection still counts for 35 s at most. */
  readonly connected: boolean;
  readonly lastContactAt: number | undefined;
  /** When every kind had been listed once. */
  readonly listedAt: number | undefined;
  /** 0 while connected. */
  readonly staleForMs: number;
}
