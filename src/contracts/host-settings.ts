/** What the machine is asked to be like, beyond what the proxy is made of; tried once at the start. */
export interface HostSettings {
  /** How readily the kernel ends this process when memory is short: -1000 (never) to 1000. */
  readonly oomScoreAdj: number;
  readonly conntrack: ConntrackSettings;
}

/** Timeouts in milliseconds, of which whole seconds count; 0 leaves one as it is. */
export interface ConntrackSettings {
  /** Entries per core of the machine; 0 leaves the limit as it is. */
  readonly maxPerCore: number;
  /** The least limit, whatever the number of cores. */
  readonly min: number;
  readonly tcpEstablishedTimeoutMs: number;
  readonly tcpCloseWaitTimeoutMs: number;
  /** Packets outside the TCP window are not marked invalid. `false` leaves it as it is. */
  readonly tcpBeLiberal: boolean;
  /** Of flows without an answer. */
  readonly udpTimeoutMs: number;
  readonly udpStreamTimeoutMs: number;
}
