import { type Log, type LogFields, plainFields } from '../../src/util/log.ts';

export interface LogLine {
  readonly level: 'error' | 'warn' | 'info';
  readonly message: string;
  readonly fields: LogFields;
}

/** Keeps every line, at every verbosity. */
export class RecordingLog implements Log {
  readonly lines: LogLine[] = [];

  error(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'error', message, fields: plainFields(fields) });
  }

  warn(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'warn', message, fields: plainFields(fields) });
  }

  info(message: string, fields: LogFields = {}): void {
    this.lines.push({ level: 'info', message, fields: plainFields(fields) });
  }

  v(): Log {
    return this;
  }

  of(level: LogLine['level']): LogLine[] {
    return this.lines.filter((line) => line.level === level);
  }
}
