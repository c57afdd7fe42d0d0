/** What the control plane reports of itself; the data plane's counters are read from its stats at scrape time. */
export interface SyncMetrics {
  /** A change arrived and waits for a sync. */
  changesQueued(): void;
  /** One full pass: plan and apply. */
  syncDone(durationMs: number): void;
  restoreFailed(): void;
  /** Objects whose change has been applied to the state since start. */
  changed(kind: 'service' | 'endpoint', count: number): void;
}

/** Whether rules keep up with what is wanted: what `/healthz` answers from. */
export interface SyncHealth {
  /** Something is wanted that is not installed yet. */
  queuedUpdate(): void;
  /** Everything wanted is installed. */
  updated(): void;
}
