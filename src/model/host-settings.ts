/** Applied once at the start; failures are logged. */
export interface HostSettings {
  /** How readily the kernel ends this process when memory is short: -1000 (never) to 1000. */
  readonly oomScoreAdj: number;
  /** Connections may reuse a local port in TIME_WAIT. `false` leaves the kernel's setting. */
  readonly tcpTwReuse: boolean;
  readonly conntrack: ConntrackSettings;
}

export type MachineSettings = Omit<HostSettings, 'oomScoreAdj'>;

/** Timeouts in milliseconds, of which whole seconds count; 0 leaves one unchanged. */
export interface ConntrackSettings {
  /** Entries per core; 0 leaves the limit unchanged. */
  readonly maxPerCore: number;
  /** The least limit. */
  readonly min: number;
  readonly tcpEstablishedTimeoutMs: number;
  readonly tcpCloseWaitTimeoutMs: number;
  /** Packets outside the TCP window are not marked invalid. `false` leaves the kernel's setting. */
  readonly tcpBeLiberal: boolean;
  /** Of flows without an answer. */
  readonly udpTimeoutMs: number;
  readonly udpStreamTimeoutMs: number;
}
