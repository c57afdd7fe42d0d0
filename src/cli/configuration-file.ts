import { object } from './field-types.ts';
import { SETTING_NAMES, SETTINGS, type SettingName } from './settings.ts';
import { suggest } from './suggest.ts';
import { UsageError } from './usage-error.ts';

export const API_VERSION = 'kubeproxy.config.k8s.io/v1alpha1';
export const KIND = 'KubeProxyConfiguration';

/** The documents of a YAML or JSON file as plain values. Throws an error whose message is a clause for the user. */
export type ReadDocuments = (path: string) => readonly unknown[];

/** By setting, as its flag would be given it. What stands for a default is not there. */
export type FileTexts = ReadonlyMap<SettingName, readonly string[]>;

const NAME_BY_PATH = new Map<string, SettingName>();
/** Of fields that hold fields: `ipvs`, `logging.options`. */
const PARENTS = new Set<string>();
for (const name of SETTING_NAMES) {
  const path = SETTINGS[name].field?.path;
  if (path === undefined) continue;
  NAME_BY_PATH.set(path, name);
  for (let dot = path.indexOf('.'); dot !== -1; dot = path.indexOf('.', dot + 1)) PARENTS.add(path.slice(0, dot));
}

/**
 * Reads a KubeProxyConfiguration, strictly: a field that is unknown, or of the wrong kind, is refused. (Upstream goes on
 * with a warning after such a one, so that a slip of the pen is a default on every node.) Throws {@link UsageError}.
 */
export function readConfigurationFile(path: string, readDocuments: ReadDocuments): FileTexts {
  try {
    return decode(documentOf(path, readDocuments));
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw new UsageError(`--config ${JSON.stringify(path)}: ${error.message}`);
  }
}

function documentOf(path: string, readDocuments: ReadDocuments): Readonly<Record<string, unknown>> {
  const [document, ...others] = readDocuments(path);
  if (document === undefined) throw new UsageError(`is empty; it must be a ${KIND}`);
  if (others.length > 0) throw new UsageError(`has ${others.length + 1} documents; it must be one ${KIND}`);
  if (typeof document !== 'object' || document === null || Array.isArray(document)) {
    throw new UsageError(`is no object; it must be a ${KIND}`);
  }
  return document as Readonly<Record<string, unknown>>;
}

function decode({ apiVersion, kind, ...rest }: Readonly<Record<string, unknown>>): FileTexts {
  if (apiVersion !== API_VERSION || kind !== KIND) {
    throw new UsageError(
      `is of apiVersion ${quoted(apiVersion)} and kind ${quoted(kind)}; it must be of ${API_VERSION} and ${KIND}`,
    );
  }
  const texts = new Map<SettingName, readonly string[]>();
  const unknown: string[] = [];
  for (const [path, value] of leaves(rest, [])) {
    const name = NAME_BY_PATH.get(path);
    if (name === undefined) unknown.push(path);
    else if (value !== null) set(texts, name, value);
  }
  refuse(unknown);
  return texts;
}

/** The fields below `node` that hold no fields themselves, and everything that is unknown. */
function* leaves(node: object, above: readonly string[]): Generator<readonly [path: string, value: unknown]> {
  for (const [key, value] of Object.entries(node)) {
    // A key with a dot is no path, however much it looks like one.
    const path = [...above, key.includes('.') ? JSON.stringify(key) : key];
    const name = path.join('.');
    if (!PARENTS.has(name)) yield [name, value];
    else if (value !== null)
      yield* leaves(
        naming(name, () => object(value)),
        path,
      );
  }
}

function set(texts: Map<SettingName, readonly string[]>, name: SettingName, value: unknown): void {
  const { field } = SETTINGS[name];
  if (field === undefined) return;
  const read = naming(field.path, () => field.type.read(value));
  if (read !== undefined) texts.set(name, read);
}

/** Puts the name of a field before what is wrong with it. */
function naming<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof UsageError) throw new UsageError(`${name} ${error.message}`);
    throw error;
  }
}

const SHOWN = 5;

function refuse(unknown: readonly string[]): void {
  const [first] = unknown;
  if (first === undefined) return;
  const shown = unknown.slice(0, SHOWN).map(quoted).join(', ');
  const more = unknown.length > SHOWN ? ` and ${unknown.length - SHOWN} more` : '';
  const meant = suggest(first, [...NAME_BY_PATH.keys(), ...PARENTS]);
  const advice =
    meant === undefined ? 'take them out, or see docs/flags.md for those there are' : `did you mean ${meant}?`;
  throw new UsageError(`unknown fields ${shown}${more}: ${advice}`);
}

function quoted(value: unknown): string {
  return JSON.stringify(typeof value === 'string' ? value.slice(0, 100) : (value ?? ''));
}
