import { stringify } from 'yaml';
import { printable } from '../util/text.ts';
import { SETTINGS } from './flags.ts';
import { object } from './setting.ts';
import { FileError, suggest, UsageError } from './usage-error.ts';

const API_VERSION = 'kubeproxy.config.k8s.io/v1alpha1';
const KIND = 'KubeProxyConfiguration';

/** One document of a YAML or JSON file. */
export interface ConfigurationDocument {
  /** As `JSON.parse` would give it. */
  readonly value: unknown;
  /** In which line of the file, from 1, a field is written, or the last on the way to it that is there. */
  readonly lineOf: (path: readonly string[]) => number;
}

/** Reads a file. Throws an error whose message is a clause for the user, with a `line` if it is about one. */
export type ReadDocuments = (path: string) => readonly ConfigurationDocument[];

/** What a file says of one setting. */
export interface FileText {
  /** As its flag would be given it. */
  readonly texts: readonly string[];
  readonly line: number;
}

/** What a file says, without what stands for a default. */
export interface FileTexts {
  readonly path: string;
  readonly settings: ReadonlyMap<string, FileText>;
}

const NAME_BY_PATH = new Map<string, string>();
/** Of fields that hold fields: `ipvs`, `logging.options`. */
const PARENTS = new Set<string>();
for (const [name, { field }] of Object.entries(SETTINGS)) {
  if (field === undefined) continue;
  NAME_BY_PATH.set(field, name);
  for (let dot = field.indexOf('.'); dot !== -1; dot = field.indexOf('.', dot + 1)) PARENTS.add(field.slice(0, dot));
}

/**
 * Reads a KubeProxyConfiguration, strictly: a field that is unknown, or of the wrong kind, is refused. (Upstream goes
 * on with a warning after such a one, so that a slip of the pen is a default on every node.) Throws {@link UsageError}.
 */
export function readConfigurationFile(path: string, readDocuments: ReadDocuments): FileTexts {
  try {
    return { path, settings: decode(documentOf(path, readDocuments)) };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { line } = error as { readonly line?: number };
    throw new UsageError(`${placeInFile(path, line)}: ${error.message}`);
  }
}

/** `--config /etc/kube-proxy.conf:12`, on which editors and terminals can jump to the line. */
export function placeInFile(path: string, line: number | undefined): string {
  return `--config ${printable(path)}${line === undefined ? '' : `:${line}`}`;
}

function documentOf(path: string, readDocuments: ReadDocuments): ConfigurationDocument {
  const [document, second, ...others] = readDocuments(path);
  if (document === undefined) throw new UsageError(`is empty; it must be a ${KIND}`);
  if (second !== undefined) {
    throw new FileError(`has ${others.length + 2} documents; it must be one ${KIND}`, second.lineOf([]));
  }
  const { value, lineOf } = document;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new FileError(`is no object; it must be a ${KIND}`, lineOf([]));
  }
  return document;
}

function decode({ value, lineOf }: ConfigurationDocument): FileTexts['settings'] {
  const { apiVersion, kind, ...rest } = value as Readonly<Record<string, unknown>>;
  if (apiVersion !== API_VERSION || kind !== KIND) {
    throw new FileError(
      `is of apiVersion ${quoted(apiVersion)} and kind ${quoted(kind)}; it must be of ${API_VERSION} and ${KIND}`,
      lineOf([apiVersion === API_VERSION ? 'kind' : 'apiVersion']),
    );
  }
  const settings = new Map<string, FileText>();
  const unknown: Leaf[] = [];
  for (const leaf of leaves(rest, [], lineOf)) {
    const setting = NAME_BY_PATH.get(leaf.name);
    if (setting === undefined) unknown.push(leaf);
    else if (leaf.value !== null) set(settings, setting, leaf, lineOf);
  }
  refuse(unknown, lineOf);
  return settings;
}

type LineOf = ConfigurationDocument['lineOf'];

/** A field that holds no fields itself, or is unknown. */
interface Leaf {
  readonly path: readonly string[];
  /** The path in one, such as `iptables.syncPeriod`. */
  readonly name: string;
  readonly value: unknown;
}

function* leaves(node: object, above: readonly string[], lineOf: LineOf): Generator<Leaf> {
  for (const [key, value] of Object.entries(node)) {
    const path = [...above, key];
    const name = nameOf(path);
    if (!PARENTS.has(name)) yield { path, name, value };
    else if (value !== null) {
      const children = placing({ path, name }, lineOf, () => object(value));
      yield* leaves(children, path, lineOf);
    }
  }
}

/** A key with a dot is no path, however much it looks like one. */
function nameOf(path: readonly string[]): string {
  return path.map((key) => (key.includes('.') ? JSON.stringify(key) : key)).join('.');
}

function set(settings: Map<string, FileText>, name: string, leaf: Leaf, lineOf: LineOf): void {
  const texts = placing(leaf, lineOf, () => SETTINGS[name]?.read(leaf.value));
  if (texts !== undefined) settings.set(name, { texts, line: lineOf(leaf.path) });
}

/** Says of which field something is wrong, and where that is. */
function placing<T>({ path, name }: Pick<Leaf, 'path' | 'name'>, lineOf: LineOf, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof UsageError) throw new FileError(`${name} ${error.message}`, lineOf(path));
    throw error;
  }
}

const SHOWN = 5;

function refuse(unknown: readonly Leaf[], lineOf: LineOf): void {
  const [first, second] = unknown;
  if (first === undefined) return;
  const shown = unknown.slice(0, SHOWN).map(({ name, path }, index) => {
    // The first one's is that of the message.
    return index === 0 ? quoted(name) : `${quoted(name)} (line ${lineOf(path)})`;
  });
  const more = unknown.length > SHOWN ? ` and ${unknown.length - SHOWN} more` : '';
  const meant = suggest(first.name, [...NAME_BY_PATH.keys(), ...PARENTS]);
  const [what, them] = second === undefined ? ['unknown field', 'it'] : ['unknown fields', 'them'];
  const advice =
    meant === undefined ? `take ${them} out, or see docs/flags.md for those there are` : `did you mean ${meant}?`;
  throw new FileError(`${what} ${shown.join(', ')}${more}: ${advice}`, lineOf(first.path));
}

function quoted(value: unknown): string {
  return JSON.stringify(typeof value === 'string' ? value.slice(0, 100) : (value ?? ''));
}

/** What every field of a KubeProxyConfiguration comes to, by its path. */
export type EffectiveFields = ReadonlyMap<string, unknown>;

export function effectiveFields(values: Readonly<Record<string, unknown>>): EffectiveFields {
  const fields = new Map<string, unknown>();
  for (const [name, { field, show }] of Object.entries(SETTINGS)) {
    const shown = field === undefined ? undefined : show(values[name]);
    if (field !== undefined && shown !== undefined) fields.set(field, shown);
  }
  return fields;
}

/** A file for `--config`: YAML, its keys sorted as upstream's encoder sorts them. */
export function configurationFile(fields: EffectiveFields): string {
  const document = { apiVersion: API_VERSION, kind: KIND, ...nested(fields, (segments) => segments) };
  return stringify(document, {
    sortMapEntries: true,
    defaultStringType: 'QUOTE_DOUBLE',
    defaultKeyType: 'PLAIN',
    lineWidth: 0,
  });
}

/**
 * What `/configz` shows below `kubeproxy.config.k8s.io`: the fields under the names that they have in kube-proxy's own
 * code, in the shape of 1.20 (later ones have no `PortRange` and `UDPIdleTimeout`, which matter here).
 */
export function effectiveConfiguration({ fields }: { readonly fields: EffectiveFields }): object {
  return nested(fields, goNames);
}

type Nested = { [key: string]: unknown };

function nested(fields: EffectiveFields, rename: (segments: readonly string[]) => readonly string[]): Nested {
  const root: Nested = {};
  for (const [path, value] of fields) {
    const segments = rename(path.split('.'));
    let node = root;
    for (const segment of segments.slice(0, -1)) {
      node[segment] ??= {};
      node = node[segment] as Nested;
    }
    node[segments.at(-1) ?? ''] = value;
  }
  return root;
}

const GO_PREFIXES: ReadonlyMap<string, string> = new Map([
  ['iptables', 'IPTables'],
  ['ipvs', 'IPVS'],
  ['nftables', 'NFTables'],
  ['oom', 'OOM'],
  ['qps', 'QPS'],
  ['tcp', 'TCP'],
  ['udp', 'UDP'],
]);

function goNames(segments: readonly string[]): readonly string[] {
  const [first = ''] = segments;
  // Only the logging types carry names for JSON.
  return first === 'logging' ? [goName(first), ...segments.slice(1)] : segments.map(goName);
}

function goName(segment: string): string {
  const [prefix = ''] = /^[a-z]+/.exec(segment) ?? [];
  const known = GO_PREFIXES.get(prefix);
  return known === undefined
    ? segment.charAt(0).toUpperCase() + segment.slice(1)
    : known + segment.slice(prefix.length);
}
