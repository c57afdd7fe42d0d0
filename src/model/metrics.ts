import type { Table } from './iptables.ts';

/** Reports of the control plane. The data plane's counters are read at scrape time. */
export interface SyncMetrics {
  /** A change waits for a sync. */
  changesQueued(): void;
  /**
   * One pass, plan and apply, has ended; failed ones too, as upstream counts them, with `err` saying why. `full`: it
   * has compared everything with the kernel; `partial`: it has written what changed.
   */
  syncDone(sync: { readonly kind: 'full' | 'partial'; readonly durationMs: number; readonly err?: string }): void;
  /** `partial`: everything is compared with the kernel now. */
  restoreFailed(kind: 'full' | 'partial'): void;
  /** A table is in sync: how many rules of this program stand there, and how many of them were written for it. */
  rulesInstalled(table: Table, rules: { readonly total: number; readonly written: number }): void;
}

export interface FlowMetrics {
  /** Stale conntrack entries were looked for. */
  conntrackReconciled(durationMs: number, deletedEntries: number): void;
}

/** Whether the installed rules are up to date, for `/healthz`. */
export interface SyncHealth {
  /** Something is wanted that is not installed yet. */
  queuedUpdate(): void;
  /** Everything wanted is installed. */
  updated(): void;
}

/**
 * The API client's requests, for client-go's `rest_client_*` metrics
 * (`k8s.io/component-base/metrics/prometheus/restclient`).
 */
export interface ApiRequestMetrics {
  /** One request was answered, or was not. Must be cheap and must not throw. */
  requestDone(request: {
    readonly method: string;
    /** `host:port` of the server. */
    readonly host: string;
    /** The HTTP status, or `<error>` when there was no answer (as client-go says it). */
    readonly code: string;
    /** Until the head of the response: what a watch streams afterwards is no latency. */
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
