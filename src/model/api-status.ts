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
