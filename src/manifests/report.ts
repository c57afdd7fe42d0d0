import type { Log, LogFields } from '../util/log.ts';

/** A line for the log that a pure function asks for. */
export interface Report {
  readonly level: 'error' | 'warn' | 'info';
  readonly message: string;
  readonly fields: LogFields;
}

export function write(log: Log, reports: readonly Report[]): void {
  for (const { level, message, fields } of reports) log[level](message, fields);
}
