import { type Found, foundText } from '../util/found.ts';
import type { LogFields } from '../util/log.ts';

/** `warn`: the proxy runs, but not as well as it could. `fail`: it does not start, or Services are not served. */
export type Level = 'ok' | 'warn' | 'fail';

/** What is wrong, or right, and what to do about it, in the words in which everything that prints it says so. */
export interface Finding extends Found {
  readonly level: Level;
  /** What it is about: `default/web:http`, `Service "default/web"`. Absent: what asked says so already. */
  readonly subject?: string;
  /** `web.yaml:3`, of what comes from a file. */
  readonly place?: string;
}

/** `default/b:http goes without 10.96.1.1:80/TCP, which default/a:http has (web.yaml:3)`: without the advice. */
export function findingText({ subject, found, place }: Omit<Finding, 'level' | 'advice'>): string {
  return [...(subject === undefined ? [] : [subject]), found, ...(place === undefined ? [] : [`(${place})`])].join(' ');
}

/** Of a line of the log: `Service "a/b" is not valid; it is left out: spec.clusterIP is missing (web.yaml:3)`. */
export function findingOf(level: Level, message: string, fields: LogFields = {}): Finding {
  const { file, line, document: _, field, err, ...rest } = fields;
  const { found, advice }: Found = typeof err === 'object' ? err : { found: String(err ?? '') };
  const pairs = Object.entries(rest).flatMap(([key, value]) => (value === undefined ? [] : `${key}: ${value}`));
  const why = [...(field === undefined ? [] : [field]), ...(found === '' ? [] : [found])].join(' ');
  return {
    level,
    found: `${message}${pairs.length === 0 ? '' : ` (${pairs.join(', ')})`}${why === '' ? '' : `: ${why}`}`,
    ...(advice !== undefined && { advice }),
    ...(file !== undefined && { place: line === undefined ? String(file) : `${file}:${line}` }),
  };
}

/**
 * What a Service port goes without: "NodePort 22/TCP", because "a program … listens on that port". The advice is apart
 * where all have the same reason.
 */
export function goesWithout(parts: readonly ({ readonly what: string } & Found)[]): Found {
  const byReason = [...Map.groupBy(parts, foundText).values()];
  const whats = (some: readonly { readonly what: string }[]) => some.map(({ what }) => what).join(', ');
  const [first] = parts;
  if (byReason.length === 1 && first !== undefined) {
    const { found, advice } = first;
    return { found: `goes without ${whats(parts)}: ${found}`, ...(advice !== undefined && { advice }) };
  }
  const each = byReason.map((some) => `${whats(some)}: ${foundText(some[0] as Found)}`);
  return { found: `goes without ${each.join('; and without ')}` };
}
