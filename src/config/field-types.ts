import { formatDuration, parseDuration } from './duration.ts';
import { UsageError } from './usage-error.ts';

/** How a field of a configuration file is written. `T` is what its flag's text becomes. */
export interface FieldType<T> {
  /**
   * A value other than null, as the flag would be given it; `undefined` where it stands for the default. Throws
   * {@link UsageError} for one of the wrong kind.
   */
  read(value: unknown): readonly string[] | undefined;
  /** As a file and `/configz` show it; `undefined` leaves the field out. */
  show(value: T): unknown;
}

/*
 * Which zero stands for the default is as in upstream's SetDefaults_KubeProxyConfiguration: that of every plain field.
 * Where upstream's type is a pointer, zero is a value, and only null the default.
 */

/** Empty is the default. */
export function text<T>(show: (value: T) => string | undefined): FieldType<T> {
  return {
    read: (value) => {
      const given = string(value);
      return given === '' ? undefined : [given];
    },
    show,
  };
}

export const TEXT = text<string | undefined>((value) => value ?? '');

/** In milliseconds. */
export const DURATION: FieldType<number> = {
  read: (value) => {
    const given = durationText(value);
    return parseDuration(given) === 0 ? undefined : [given];
  },
  show: formatDuration,
};

export const POINTER_DURATION: FieldType<number> = { read: (value) => [durationText(value)], show: formatDuration };

export const NUMBER: FieldType<number> = {
  read: (value) => (value === 0 ? undefined : [number(value)]),
  show: (value) => value,
};

export const POINTER_NUMBER: FieldType<number> = { read: (value) => [number(value)], show: (value) => value };

export const BOOLEAN: FieldType<boolean> = {
  read: (value) => {
    if (typeof value !== 'boolean') throw new UsageError('must be true or false');
    return [String(value)];
  },
  show: (value) => value,
};

/** A list of strings; null when it is empty, as Go writes an empty slice. */
export function texts<T>(show: (item: T) => string): FieldType<readonly T[]> {
  return {
    read: (value) =>
      array(value).map((item) => {
        const given = string(item);
        if (given.includes(',')) throw new UsageError('must have one value per item, without commas');
        return given;
      }),
    show: (items) => (items.length === 0 ? null : items.map(show)),
  };
}

/** Several values in one string, between commas. */
export function joined<T>(show: (item: T) => string): FieldType<readonly T[]> {
  return text((items) => items.map(show).join(','));
}

/** `{Name: true}` */
export const SWITCHES: FieldType<readonly (readonly [name: string, on: boolean])[]> = {
  read: (value) =>
    Object.entries(object(value)).map(([name, on]) => {
      if (typeof on !== 'boolean') throw new UsageError(`${JSON.stringify(name)} must be true or false`);
      return `${name}=${on}`;
    }),
  show: (switches) => Object.fromEntries(switches),
};

/** `[{filePattern: gc, verbosity: 4}]`, which as a flag is `gc=4`. */
export const VERBOSITY_BY_FILE: FieldType<readonly string[]> = {
  read: (value) =>
    array(value).map((item) => {
      const { filePattern, verbosity, ...rest } = object(item);
      const [unknown] = Object.keys(rest);
      if (unknown !== undefined) throw new UsageError(`has an unknown field ${JSON.stringify(unknown)}`);
      return `${string(filePattern)}=${number(verbosity)}`;
    }),
  show: () => undefined,
};

/** A duration, or a number of nanoseconds (`TimeOrMetaDuration` of k8s.io/component-base `logs/api/v1`). */
export const NANOSECONDS: FieldType<number> = {
  read: (value) => DURATION.read(typeof value === 'number' ? `${number(value)}ns` : value),
  show: formatDuration,
};

/** A Kubernetes quantity, with or without quotes. */
export const QUANTITY: FieldType<string> = {
  read: (value) => [typeof value === 'number' ? number(value) : string(value)],
  show: (value) => value,
};

function string(value: unknown): string {
  if (typeof value !== 'string') throw new UsageError('must be a string');
  return value;
}

function durationText(value: unknown): string {
  if (typeof value !== 'string') throw new UsageError('must be a string with a unit, such as "30s"');
  return value;
}

function number(value: unknown): string {
  if (typeof value !== 'number') throw new UsageError('must be a number');
  return String(value);
}

function array(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new UsageError('must be a list');
  return value;
}

/** Throws {@link UsageError}. */
export function object(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UsageError('must be an object');
  }
  return value as Readonly<Record<string, unknown>>;
}
