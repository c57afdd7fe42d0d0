import { isDeepStrictEqual } from 'node:util';
import { parseAddress } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import { ACCEPTED_FLAGS, FIELDS_WITHOUT_FLAG } from './accepted.ts';
import { type FileTexts, placeInFile } from './configuration-file.ts';
import { SETTING_NAMES, SETTINGS, type SettingName, type SettingValues } from './settings.ts';
import { UsageError } from './usage-error.ts';

export interface Evaluated {
  readonly values: SettingValues;
  /** A sentence for each kind of thing that was said and is not done. */
  readonly warnings: readonly string[];
  readonly said: Said;
}

/** Who says what, for people. */
export interface Said {
  /** `--udp-timeout`, or the field of a file. */
  nameOf(name: SettingName): string;
  /** With a colon and a blank behind it, that of the first of these which a file says; empty when none does. */
  placeOf(...names: readonly SettingName[]): string;
}

interface Given {
  readonly texts: readonly string[];
  readonly name: string;
  /** With a colon and a blank behind it; empty for a flag. */
  readonly place: string;
}

/** Every text that was given to each flag, in order. */
export type FlagTexts = ReadonlyMap<SettingName, readonly string[]>;

/** Turns texts into values; `file` is what `--config` says. Throws {@link UsageError}. */
export function evaluate(flags: FlagTexts, file: FileTexts | undefined): Evaluated {
  const given = file === undefined ? givenByFlags(withPorts(flags)) : givenByFile(file, flags);
  const values: Partial<Record<SettingName, unknown>> = {};
  for (const name of SETTING_NAMES) values[name] = evaluateOne(name, given.get(name));
  return {
    values: values as SettingValues,
    warnings: [...overruled(flags, file), ...withoutEffect(values, given)],
    said: {
      nameOf: (name) => given.get(name)?.name ?? (file && SETTINGS[name].field?.path) ?? `--${name}`,
      placeOf: (...names) => names.map((name) => given.get(name)?.place).find(Boolean) ?? '',
    },
  };
}

function givenByFlags(flags: FlagTexts): ReadonlyMap<SettingName, Given> {
  return new Map([...flags].map(([name, texts]) => [name, { texts, name: `--${name}`, place: '' }]));
}

/** With a file, flags count only for what no field says, or where upstream lets them. */
function givenByFile(file: FileTexts, flags: FlagTexts): ReadonlyMap<SettingName, Given> {
  const given = new Map<SettingName, Given>();
  for (const [setting, { texts, line }] of file.settings) {
    const name = SETTINGS[setting].field?.path ?? '';
    given.set(setting, { texts, name, place: `${placeInFile(file.path, line)}: ` });
  }
  for (const [setting, flag] of givenByFlags(flags)) if (countsBesideFile(setting)) given.set(setting, flag);
  return given;
}

function countsBesideFile(name: SettingName): boolean {
  const { field } = SETTINGS[name];
  // The ports are parts of addresses that have fields.
  return field === undefined ? name !== 'healthz-port' && name !== 'metrics-port' : field.flagWins === true;
}

/** `--healthz-port` and `--metrics-port` as upstream's addressFromDeprecatedFlags takes them. */
function withPorts(flags: FlagTexts): FlagTexts {
  const completed = new Map(flags);
  for (const server of ['healthz', 'metrics'] as const) {
    const texts = flags.get(`${server}-port`);
    if (texts === undefined) continue;
    const port = Number(evaluateOne(`${server}-port`, { texts, name: `--${server}-port`, place: '' }));
    const name = `${server}-bind-address` as const;
    const address = parseAddress(flags.get(name)?.at(-1) ?? '');
    if (port === 0) completed.set(name, ['']);
    else if (address !== undefined) completed.set(name, [endpointName({ address, port })]);
  }
  return completed;
}

function evaluateOne(name: SettingName, given: Given | undefined): unknown {
  const { parse, fallback } = SETTINGS[name];
  if (given === undefined) return parse(fallback);
  try {
    return parse(given.texts);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`${given.place}${given.name} ${JSON.stringify(given.texts.join(','))}: ${error.message}`);
  }
}

function overruled(flags: FlagTexts, file: FileTexts | undefined): string[] {
  if (file === undefined) return [];
  const names = [...flags.keys()].filter((name) => !countsBesideFile(name)).map((name) => `--${name}`);
  return names.length === 0
    ? []
    : [`Flags that do not count because --config decides what they say: ${names.join(', ')}`];
}

const WITHOUT_EFFECT = Object.entries({ ...ACCEPTED_FLAGS, ...FIELDS_WITHOUT_FLAG });

/** Files that kubeadm writes have a field for everything: only what is not the default is worth telling. */
function withoutEffect(values: Readonly<Record<string, unknown>>, given: ReadonlyMap<string, Given>): string[] {
  const told = WITHOUT_EFFECT.flatMap(([name, { of, parse, fallback }]) => {
    const said = given.get(name);
    if (said === undefined || isDeepStrictEqual(values[name], parse(fallback))) return [];
    return [`${said.place}${said.name} (${of})`];
  });
  return told.length === 0 ? [] : [`Accepted, but without effect in this proxy: ${told.join(', ')}`];
}
