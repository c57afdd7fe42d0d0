/** `warn`: the proxy runs, but not as well as it could. `fail`: it does not start, or Services are not served. */
export type Level = 'ok' | 'warn' | 'fail';

/** One thing that was looked at. */
export interface Finding {
  readonly level: Level;
  /** What there is: a clause or a sentence without its full stop. */
  readonly found: string;
  /** What to do about it. Absent only where nothing is to be done. */
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
