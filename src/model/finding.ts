/** `warn`: the proxy runs, but not as well as it could. `fail`: it does not start, or Services are not served. */
export type Level = 'ok' | 'warn' | 'fail';

/** What is wrong, or right, and what to do about it, in the words in which everything that prints it says so. */
export interface Finding {
  readonly level: Level;
  /** What it is about: `default/web:http`, `Service "default/web"`. Absent: what asked says so already. */
  readonly subject?: string;
  /** A clause or a sentence without its full stop. It goes on where `subject` ends. */
  readonly found: string;
  /** What to do about it. Absent when nothing has to be done. */
  readonly advice?: string;
  /** `web.yaml:3`, of what comes from a file. */
  readonly place?: string;
}

/** `default/b:http goes without 10.96.1.1:80/TCP, which default/a:http has (web.yaml:3)`: without the advice. */
export function findingText({ subject, found, place }: Omit<Finding, 'level' | 'advice'>): string {
  return [...(subject === undefined ? [] : [subject]), found, ...(place === undefined ? [] : [`(${place})`])].join(' ');
}

/** Reasons are one text: what was found, and behind the last semicolon what to do. */
export function splitAdvice(text: string): Pick<Finding, 'found' | 'advice'> {
  const at = text.lastIndexOf('; ');
  return at < 0 ? { found: text } : { found: text.slice(0, at), advice: text.slice(at + 2) };
}

/** What a Service port goes without: "NodePort 22/TCP", because "a program … listens on that port; stop it, or …". */
export function goesWithout(parts: readonly { readonly what: string; readonly reason: string }[]): string {
  const byReason = Map.groupBy(parts, ({ reason }) => reason);
  const each = [...byReason].map(([reason, some]) => `${some.map(({ what }) => what).join(', ')}: ${reason}`);
  return `goes without ${each.join('; and without ')}`;
}
