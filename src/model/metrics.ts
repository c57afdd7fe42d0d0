export interface SyncMetrics {
  /** A change waits for a sync. */
  changesQueued(): void;
  /**
   * A sync has ended, successfully without `err`. `full`: it compared everything with the kernel; `partial`: it wrote
   * what changed.
   */
  syncDone(sync: { readonly kind: 'full' | 'partial'; readonly durationMs: number; readonly err?: string }): void;
  restoreFailed(kind: 'full' | 'partial'): void;
  /**
   * A table is in sync. `total`: its rules of this program; `written`: rules that this sync wrote; `leftOut`: wanted
   * rules that the kernel refuses.
   */
  rulesInstalled(
    table: string,
    rules: { readonly total: number; readonly written: number; readonly leftOut: number },
  ): void;
}

export interface FlowMetrics {
  conntrackReconciled(durationMs: number, deletedEntries: number): void;
}

/** Whether the installed rules are up to date, for `/healthz`. */
export interface SyncHealth {
  /** Something is wanted that is not installed yet. */
  queuedUpdate(): void;
  /** All that is wanted by now is being installed. What comes meanwhile is not. */
  syncBegins(): void;
  /** What was wanted when the last sync began is installed. */
  updated(): void;
}

/** For client-go's `rest_client_*` metrics (`k8s.io/component-base/metrics/prometheus/restclient`). */
export interface ApiRequestMetrics {
  /** Must be cheap and must not throw. */
  requestDone(request: {
    readonly method: string;
    /** `host:port` of the server. */
    readonly host: string;
    /** The HTTP status, or `<error>` without an answer, as in client-go. */
    readonly code: string;
    /** Until the head of the response. */
    readonly durationMs: number;
  }): void;
}

/** How late an event loop was, in milliseconds, over a number of looks. */
export interface LoopDelayMs {
  readonly min: number;
  readonly mean: number;
  readonly stddev: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}
