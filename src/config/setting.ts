import { formatDuration, parseDuration } from '../util/duration.ts';
import { show as quoted } from '../util/untrusted.ts';
import { UsageError } from './usage-error.ts';
import { boolean, duration, integer, quantity } from './values.ts';

/** How one value is written: as the text of a flag, and in a field of a configuration file. */
export interface Kind<T> {
  /** Throws {@link UsageError} with a clause that follows the flag and its text. */
  readonly parse: (text: string) => T;
  /**
   * A value of a field other than null, as the flag would be given it; `undefined` where it stands for the default.
   * Throws {@link UsageError} for one of the wrong type.
   */
  readonly read: (value: unknown) => readonly string[] | undefined;
  /** As a file and `/configz` show it; `undefined` leaves the field out. */
  show(value: T): unknown;
  /** All possible values. */
  readonly choices?: readonly string[];
  /** Of a whole number. */
  readonly range?: readonly [min: number, max: number];
  /** `--flag` alone stands for `--flag=true`. */
  readonly isSwitch?: true;
}

/*
 * As in upstream's SetDefaults_KubeProxyConfiguration, the zero of a plain field stands for the default. Where
 * upstream's type is a pointer, zero is a value, and only null stands for the default.
 */

export function text<T>(parse: (text: string) => T, show: (value: T) => unknown = (value) => value ?? ''): Kind<T> {
  return { parse, read: unless(stringOf, ''), show };
}

export const TEXT = text((value) => value);
export const OPTIONAL_TEXT = text((value) => (value === '' ? undefined : value));
export const QUANTITY: Kind<string> = {
  parse: quantity,
  read: (value) => [typeof value === 'number' ? numberOf(value) : stringOf(value)],
  show: (value) => value,
};

export function oneOf<const T extends string>(...choices: readonly T[]): Kind<T> {
  const parse = (given: string) => {
    const choice = choices.find((candidate) => candidate === given);
    if (choice === undefined) throw new UsageError(`must be one of ${choices.map((one) => one || '""').join(', ')}`);
    return choice;
  };
  return { ...text(parse), choices };
}

/** In milliseconds. */
export function time(parse: (text: string) => number): Kind<number> {
  const read = (value: unknown) => (parseDuration(durationOf(value)) === 0 ? undefined : [durationOf(value)]);
  return { parse, read, show: formatDuration };
}

export function whole(min: number, max: number): Kind<number> {
  return { ...number(integer(min, max)), range: [min, max] };
}

export function number(parse: (text: string) => number): Kind<number> {
  return { parse, read: unless(numberOf, '0'), show: (value) => value };
}

/** A number or time whose zero is a value. */
export function pointer(kind: Kind<number>): Kind<number> {
  return { ...kind, read: (value) => [kind.show === formatDuration ? durationOf(value) : numberOf(value)] };
}

export const BOOLEAN: Kind<boolean> = {
  parse: boolean,
  read: (value) => {
    if (typeof value !== 'boolean') throw new UsageError('must be true or false');
    return [String(value)];
  },
  show: (value) => value,
  isSwitch: true,
};

/** A duration, or a number of nanoseconds (`TimeOrMetaDuration` of k8s.io/component-base `logs/api/v1`). */
export const NANOSECONDS: Kind<number> = {
  ...time(duration),
  read: (value) => time(duration).read(typeof value === 'number' ? `${value}ns` : value),
};

/** One thing that can be set, on the command line or in the file of `--config`. */
export interface Setting<T> extends Omit<Kind<T>, 'parse'> {
  /** What applies when nothing is said, as a user would write it. */
  readonly fallback: readonly string[];
  /** Takes every occurrence in order. Throws {@link UsageError}. */
  readonly parse: (occurrences: readonly string[]) => T;
  /** Where a KubeProxyConfiguration (`kubeproxy.config.k8s.io/v1alpha1`) says the same: `iptables.syncPeriod`. */
  readonly field?: string;
}

/** A setting with an effect, and how `--help` shows it. */
export interface Flag<T> extends Setting<T> {
  readonly group: string;
  readonly describe: string;
  /** What `--help` shows in place of an empty fallback. */
  readonly fallbackText?: string;
}

/**
 * A setting of kube-proxy's that has no effect here: its value is checked, and one that is not the default is logged.
 */
export interface AcceptedSetting<T> extends Setting<T> {
  /** What it belongs to in kube-proxy: "ipvs mode", "klog". */
  readonly of: string;
  /** Whether this value has no effect; by default, none has. */
  isIgnored?(value: T): boolean;
}

/** With one value; given twice, the last wins, as with kube-proxy's pflag. */
export function one<T, Rest extends object>(kind: Kind<T>, fallback: string, rest: Rest): Setting<T> & Rest {
  return { ...kind, ...rest, fallback: [fallback], parse: (given) => kind.parse(given.at(-1) ?? fallback) };
}

/** May be repeated, each time with one value or several between commas; in a file a list, null when it is empty. */
export function many<T, Rest extends object>(kind: Kind<T>, rest: Rest): Setting<readonly T[]> & Rest {
  return {
    read: (value) =>
      list(value).map((item) => {
        if (stringOf(item).includes(',')) throw new UsageError('must have one value per item, without commas');
        return stringOf(item);
      }),
    show: (items) => (items.length === 0 ? null : items.map(kind.show)),
    ...rest,
    fallback: [],
    parse: (given) =>
      given.flatMap((each) => (each === '' ? [] : each.split(','))).map((each) => kind.parse(each.trim())),
  };
}

/** Several values in one string of a file, between commas. */
export function joined<T>(kind: Kind<T>): Pick<Setting<readonly T[]>, 'read' | 'show'> {
  return { read: unless(stringOf, ''), show: (items) => items.map(kind.show).join(',') };
}

/** `{Name: true}` */
export const SWITCHES: Pick<Setting<readonly (readonly [name: string, on: boolean])[]>, 'read' | 'show'> = {
  read: (value) =>
    Object.entries(object(value)).map(([name, on]) => {
      if (typeof on !== 'boolean') throw new UsageError(`${quoted(name)} must be true or false`);
      return `${name}=${on}`;
    }),
  show: (switches) => Object.fromEntries(switches),
};

/** `[{filePattern: gc, verbosity: 4}]`, which as a flag is `gc=4`. */
export const VERBOSITY_BY_FILE: Pick<Setting<readonly string[]>, 'read' | 'show'> = {
  read: (value) =>
    list(value).map((item) => {
      const { filePattern, verbosity, ...rest } = object(item);
      const [unknown] = Object.keys(rest);
      if (unknown !== undefined) throw new UsageError(`has an unknown field ${quoted(unknown)}`);
      return `${stringOf(filePattern)}=${numberOf(verbosity)}`;
    }),
  show: () => undefined,
};

function unless(read: (value: unknown) => string, fallback: string): (value: unknown) => readonly string[] | undefined {
  return (value) => (read(value) === fallback ? undefined : [read(value)]);
}

function stringOf(value: unknown): string {
  if (typeof value !== 'string') throw new UsageError('must be a string');
  return value;
}

function durationOf(value: unknown): string {
  if (typeof value !== 'string') throw new UsageError('must be a string with a unit, such as "30s"');
  return value;
}

function numberOf(value: unknown): string {
  if (typeof value !== 'number') throw new UsageError('must be a number');
  return String(value);
}

function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new UsageError('must be a list');
  return value;
}

/** Throws {@link UsageError}. */
export function object(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new UsageError('must be an object');
  return value as Readonly<Record<string, unknown>>;
}
