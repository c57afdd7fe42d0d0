import type { Finding, Level } from '../model/finding.ts';
import type { Found } from '../util/found.ts';
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

  /** `Service "a/b" is not valid; it is left out: spec.clusterIP is missing (web.yaml:3) → write one`. */
  #findingOf(level: Level, message: string, fields: LogFields = {}): Finding {
    const { file, line, document: _, field, err, ...rest } = fields;
    const { found, advice = this.#advice.general }: Found =
      typeof err === 'object' ? err : { found: String(err ?? '') };
    const pairs = Object.entries(rest).flatMap(([key, value]) => (value === undefined ? [] : `${key}: ${value}`));
    const why = [...(field === undefined ? [] : [field]), ...(found === '' ? [] : [found])].join(' ');
    return {
      level,
      found: `${message}${pairs.length === 0 ? '' : ` (${pairs.join(', ')})`}${why === '' ? '' : `: ${why}`}`,
      advice,
      ...(file !== undefined && { place: line === undefined ? String(file) : `${file}:${line}` }),
    };
  }
}
