/** What the reflector asks of the network. Every failure is an {@link ApiError}. Paths come with their query. */
export interface Transport {
  /**
   * A GET whose answer is streamed; not subject to the rate limit. Resolves at the head of a successful JSON answer.
   * Aborting ends the stream with the signal's reason, and nothing comes after that.
   */
  watch(path: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** A GET whose answer is one JSON value, bounded in size and time. */
  get(path: string, signal: AbortSignal): Promise<unknown>;
  /** Resolves when the server answered anything at all within {@link PROBE_DEADLINE_MS}. Calls share one request. */
  probe(): Promise<void>;
  /** `Clock.now()` of the last byte from the server, on any connection. */
  readonly lastContactAt: number | undefined;
}

/** How long a server may take to answer a trivial request before it counts as dead. */
export const PROBE_DEADLINE_MS = 10_000;
