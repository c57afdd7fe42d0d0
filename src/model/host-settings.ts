/** What the machine is asked to be like, beyond what the proxy is made of; tried once at the start. */
export interface HostSettings {
  /** How readily the kernel ends this process when memory is short: -1000 (never) to 1000. */
  readonly oomScoreAdj: number;
  /** A connection may have the local port of one that has ended (TIME_WAIT). `false` leaves that as it is. */
  readonly tcpTwReuse: boolean;
  readonly conntrack: ConntrackSettings;
}

/** Those of the machine, for a proxy that may run with fewer rights. */
export type MachineSettings = Omit<HostSettings, 'oomScoreAdj'>;

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
