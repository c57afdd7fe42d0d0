import { type Found, foundText } from './found.ts';

/**
 * Fixed keys, so that a search for one finds every line: `svc` (ServicePortName), `port` (local port), `backend`,
 * `client`, `err`, `file`. Values are data from the network: sinks must encode them.
 */
export type LogFields = Readonly<Record<string, LogValue | Found | undefined>>;

type LogValue = string | number | boolean;

/** Without what is absent, and with one text in place of each {@link Found}. */
export function plainFields(fields: LogFields): Readonly<Record<string, LogValue>> {
  const plain: Record<string, LogValue> = {};
  for (const [key, value] of Object.entries(fields)) {
    if (value !== undefined) plain[key] = typeof value === 'object' ? foundText(value) : value;
  }
  return plain;
}

interface LogSink {
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
