import { type Finding, findingOf, type Level } from '../model/finding.ts';
import type { Log, LogFields } from '../util/log.ts';

export type { Finding, Level };

export function ok(found: string): Finding {
  return { level: 'ok', found };
}

export function warn(found: string, advice: string): Finding {
  return { level: 'warn', found, advice };
}

export function fail(found: string, advice: string): Finding {
  return { level: 'fail', found, advice };
}

interface Advice {
  /** Where the line has none. */
  readonly general: string;
  /** Makes a line of level `info` a warning. Absent: such lines are nothing to find. */
  readonly ofInfo?: string;
}

/** Turns what the proxy's own code logs into findings. */
export class FindingsLog implements Log {
  readonly #advice: Advice;
  readonly #findings: Finding[] = [];

  constructor(general: string, advice: Omit<Advice, 'general'> = {}) {
    this.#advice = { general, ...advice };
  }

  get findings(): readonly Finding[] {
    return this.#findings;
  }

  error(message: string, fields?: LogFields): void {
    this.#findings.push(this.#findingOf('fail', message, fields));
  }

  warn(message: string, fields?: LogFields): void {
    this.#findings.push(this.#findingOf('warn', message, fields));
  }

  info(message: string, fields?: LogFields): void {
    const { ofInfo } = this.#advice;
    if (ofInfo !== undefined) this.#findings.push({ ...this.#findingOf('warn', message, fields), advice: ofInfo });
  }

  v(): undefined {}

  #findingOf(level: Level, message: string, fields: LogFields | undefined): Finding {
    return { advice: this.#advice.general, ...findingOf(level, message, fields) };
  }
}
