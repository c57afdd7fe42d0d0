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
  /** Parts that cannot be used now. A process that has just started has no last good state of them. */
  unusable(): Iterable<Unusable>;
  /** Whether this source serves something of that part. */
  serves(lost: Unusable): boolean;
}

/** A part of a source that cannot be used now. */
export interface Unusable {
  /** An object as people write it (`Service "shop/web"`), or the path of a file or directory. */
  readonly subject: string;
  /** The objects of that path that can be used. */
  readonly usable: readonly string[];
  /** Where to correct it. */
  readonly place: string;
  readonly err: string;
}

/** One object's new state; `undefined` means it is gone. The last event for a key wins. */
export type SourceEvent =
  | { readonly kind: 'Service'; readonly key: ServiceKey; readonly value: Service | undefined }
  | { readonly kind: 'Endpoints'; readonly key: ServiceKey; readonly value: Endpoints | undefined }
  | { readonly kind: 'EndpointSlice'; readonly key: ServiceKey; readonly value: EndpointSlice | undefined };

/** Tells the object of an event from all others. */
export function idOf({ kind, key }: SourceEvent): string {
  return `${kind} ${key}`;
}

/** One of the API servers that may be used. Times are milliseconds since 1970. */
export interface ApiServerStatus {
  /** `host:port` */
  readonly server: string;
  /** It is used, since then. */
  readonly usedSince?: number;
  /** It could not be used when it was tried last: "connect ECONNREFUSED". */
  readonly failure?: { readonly since: number; readonly err: string };
}

/** Times are readings of `Clock.now()`, where nothing else is said. */
export interface ApiStatus {
  /** All kinds of objects are being watched. A dead connection still counts for 35 s at most. */
  readonly connected: boolean;
  readonly lastContactAt: number | undefined;
  /** When every kind had been listed once. */
  readonly listedAt: number | undefined;
  /** 0 while connected. */
  readonly staleForMs: number;
  /** Why it is not connected; absent while it is, and before anything has failed. */
  readonly err?: string;
  /** In order of preference. */
  readonly servers: readonly ApiServerStatus[];
  /** A state on disk is served, as the lists have not come yet; until then it was current: in ms since 1970. */
  readonly servedStateOf?: number;
}

/**
 * A line for each server: "10.0.0.1:6443: in use for 5m", "10.0.0.2:6443: failing for 2h: connect ECONNREFUSED". While
 * none can be used: "10.0.0.1:6443: used last, failing for 2h: connect ECONNREFUSED".
 */
export function serversText(
  { servers, connected, err }: Pick<ApiStatus, 'servers' | 'connected' | 'err'>,
  now: number,
  span: (ms: number) => string,
): readonly string[] {
  const isOnly = servers.length === 1;
  return servers.map(({ server, usedSince, failure }) => {
    const isUsed = usedSince !== undefined;
    const facts: string[] = [];
    if (isUsed && connected) facts.push(`in use for ${span(now - usedSince)}`);
    if (isUsed && !connected && !isOnly) facts.push('used last');
    if (failure !== undefined) facts.push(`failing for ${span(now - failure.since)}: ${failure.err}`);
    // What is wrong with credentials is no fault of the server that refuses them.
    else if (err !== undefined && (isUsed || isOnly)) facts.push(err.replace(`${server}: `, ''));
    return `${server}: ${facts.join(', ') || (isOnly ? 'no answer yet' : 'in reserve')}`;
  });
}
