import { formatDuration, parseDuration } from './duration.ts';
import { UsageError } from './usage-error.ts';

/*
 * What the text of a setting becomes. Each throws UsageError with a clause that follows the flag and its text.
 */

/** setTimeout takes no more (24.8 days); beyond it, it fires at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
export const MAX_INT32 = 2 ** 31 - 1;

/** In milliseconds. */
export function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined) {
    throw new UsageError('not a duration; write numbers with units, such as 250ms, 30s or 1h30m');
  }
  if (ms < 0) throw new UsageError('must not be negative');
  if (ms > MAX_TIMER_MS) throw new UsageError(`must be at most ${formatDuration(MAX_TIMER_MS)}`);
  return ms;
}

export function positiveDuration(text: string): number {
  const ms = duration(text);
  if (ms === 0) throw new UsageError('must be above zero');
  return ms;
}

/** For a timeout that the kernel counts in seconds; 0 leaves it alone. In milliseconds. */
export function kernelTimeout(text: string): number {
  const ms = duration(text);
  // Upstream cuts it off, and sets what is left: 0, which makes conntrack forget at once.
  if (ms > 0 && ms < 1_000) throw new UsageError('must be at least 1s, or 0 to leave it as it is');
  return ms;
}

export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    // Plus zero, for "-0" is no number of its own.
    const value = /^-?\d{1,15}$/.test(text) ? Number(text) + 0 : Number.NaN;
    if (!(value >= min && value <= max)) throw new UsageError(`must be a whole number from ${min} to ${max}`);
    return value;
  };
}

export function oneOf<const T extends string>(...choices: readonly T[]): (text: string) => T {
  return (text) => {
    const choice = choices.find((candidate) => candidate === text);
    if (choice === undefined) throw new UsageError(`must be one of ${choices.map((one) => one || '""').join(', ')}`);
    return choice;
  };
}

/** The spellings of Go's `strconv.ParseBool`. */
export function boolean(text: string): boolean {
  if (['1', 't', 'T', 'TRUE', 'true', 'True'].includes(text)) return true;
  if (['0', 'f', 'F', 'FALSE', 'false', 'False'].includes(text)) return false;
  throw new UsageError('must be true or false');
}

export function path(text: string): string {
  if (text === '') throw new UsageError('names no file or directory');
  return text;
}

export function optional(text: string): string | undefined {
  return text === '' ? undefined : text;
}

/** Of a network interface, or how it begins: less than the kernel takes, so that it is one word of a rule. */
export function interfaceName(maxLength: number): (text: string) => string {
  return (text) => {
    if (text === '' || (text.length <= maxLength && /^[A-Za-z0-9_.][A-Za-z0-9_.-]*$/.test(text))) return text;
    throw new UsageError(
      `not a name of a network interface: at most ${maxLength} letters, digits, "-", "_" and ".", and no "-" in front`,
    );
  };
}

export function anyText(text: string): string {
  return text;
}

/** client-go takes a float for QPS. */
export function positiveNumber(text: string): number {
  const value = /^\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : 0;
  if (value === 0) throw new UsageError('must be a number above zero, such as 5 or 0.5');
  return value;
}

const DNS_SUBDOMAIN = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/** Trimmed and in lower case, as upstream's `nodeutil.GetHostname`; then it must be what a Node may be named. */
export function nodeName(text: string): string | undefined {
  const name = text.trim().toLowerCase();
  if (name === '') return undefined;
  if (name.length > 253 || !DNS_SUBDOMAIN.test(name)) {
    throw new UsageError(
      'not a node name: letters, digits, "-" and "." only, each part beginning and ending without "-"',
    );
  }
  return name;
}

/** What the nodes' proxies are: this one has the one mode that gave kube-proxy its name. */
export function proxyMode(text: string): 'userspace' {
  if (text === '' || text === 'userspace') return 'userspace';
  throw new UsageError(
    'this program is the userspace mode and has no other; write userspace, leave it away, or run kube-proxy instead',
  );
}

/** One of `--feature-gates`: `Name=true`. */
export function featureGate(text: string): readonly [name: string, on: boolean] {
  const [, name = '', on = ''] = /^([A-Za-z0-9_]+)=(.*)$/s.exec(text) ?? [];
  if (name === '') throw new UsageError('not a feature gate; write Name=true or Name=false');
  return [name, boolean(on.trim())];
}

/** One of `--vmodule`: `pattern=N`. */
export function verbosityOfFile(text: string): string {
  if (!/^[^=]+=\d{1,9}$/.test(text)) throw new UsageError('not a pattern and a level; write pattern=N');
  return text;
}

/** A Kubernetes quantity: `512`, `1K`, `2Ki`. */
export function quantity(text: string): string {
  if (!/^\d{1,15}(\.\d{1,9})?(m|k|K|[KMGTPE]i|[MGTPE])?$/.test(text)) {
    throw new UsageError('not a quantity; write one such as 512, 3M or 4Gi');
  }
  return text;
}
