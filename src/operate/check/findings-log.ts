import type { Log, LogFields } from '../../util/log.ts';
import { type Finding, fail, warn } from './finding.ts';

/**
 * A log that keeps what would be errors and warnings of a run as findings, so that a check may ask the very code that
 * the run is made of.
 */
export class FindingsLog implements Log {
  readonly #advice: string;
  readonly #findings: Finding[] = [];

  /** `advice`: for lines, which mostly say themselves what to do. */
  constructor(advice: string) {
    this.#advice = advice;
  }

  get findings(): readonly Finding[] {
    return this.#findings;
  }

  error(message: string, fields?: LogFields): void {
    this.#findings.push(fail(sentence(message, fields), this.#advice));
  }

  warn(message: string, fields?: LogFields): void {
    this.#findings.push(warn(sentence(message, fields), this.#advice));
  }

  info(): void {}

  v(): undefined {}
}

/** `message (file: web.yaml:3, field: spec.clusterIP)` */
function sentence(message: string, { file, line, ...rest }: LogFields = {}): string {
  const place = file === undefined || line === undefined ? { file, line } : { file: `${file}:${line}` };
  const pairs = Object.entries({ ...place, ...rest })
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key}: ${value}`);
  return pairs.length === 0 ? message : `${message} (${pairs.join(', ')})`;
}
