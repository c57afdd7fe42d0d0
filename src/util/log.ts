/**
 * Fixed keys, so that a search for one finds every line: `svc` (ServicePortName), `port` (local port), `backend`,
 * `client`, `err`, `file`. Values are data from the network: sinks must encode them.
 */
export type LogFields = Readonly<Record<string, string | number | boolean | undefined>>;

export interface LogSink {
  info(message: string, fields?: LogFields): void;
}

export interface Log extends LogSink {
  error(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  /**
   * klog's verbosity: `log.v(4)?.info(`…${expensive()}`)`. Returns `undefined` when the level is off, so that the
   * arguments are not even evaluated.
   */
  v(level: number): LogSink | undefined;
}
