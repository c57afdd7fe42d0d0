import type { Log, LogFields } from '../util/log.ts';

/** `warn`: the proxy runs, but not as well as it could. `fail`: it does not start, or Services are not served. */
export type Level = 'ok' | 'warn' | 'fail';

export interface Finding {
  readonly level: Level;
  /** A clause or a sentence without its full stop. */
  readonly found: string;
  /** What to do about it. Absent when nothing has to be done. */
  readonly advice?: string;
}

export function ok(found: string): Finding {
  return { level: 'ok', found };
}

export function warn(found: string, advice: string): Finding {
  return { level: 'warn', found, advice };
}

export function fail(found: string, advice: string): Finding {
  return { level: 'fail', found, advice };
}

/** Turns the errors and warnings that the proxy's own code logs into findings. */
export class FindingsLog implements Log {
  readonly #advice: string;
  readonly #findings: Finding[] = [];

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
