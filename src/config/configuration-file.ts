import { dump } from 'js-yaml';
import { suggest } from '../util/suggest.ts';
import { printable } from '../util/text.ts';
import { isObject, show } from '../util/untrusted.ts';
import { type ParsedDocument, parseDocuments } from '../util/yaml.ts';
import { SETTINGS } from './flags.ts';
import { object } from './setting.ts';
import { UsageError } from './usage-error.ts';

const API_VERSION = 'kubeproxy.config.k8s.io/v1alpha1';
const KIND = 'KubeProxyConfiguration';

/** What was given to one setting, by a flag or in a file. */
export interface Given {
  /** As the flag would be given it. */
  readonly texts: readonly string[];
  /** `--udp-timeout`, or the path of the field. */
  readonly name: string;
  /** File and line, with a colon and a blank; empty for a flag. */
  readonly place: string;
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
 * Reads a KubeProxyConfiguration strictly: an unknown field and a value of the wrong type are errors. (Upstream goes on
 * with a warning, so that a typing error is a default on every node.) Settings at their default are left out. `path` is
 * for messages. Throws {@link UsageError}.
 */
export function readConfiguration(path: string, readFile: (path: string) => string): ReadonlyMap<string, Given> {
  try {
    const [document, second, ...others] = parseDocuments(readFile(path));
    if (document === undefined) throw new UsageError(`is empty; it must be a ${KIND}`);
    if (second !== undefined) {
      throw new UsageError(`has ${others.length + 2} documents; it must be one ${KIND}`, second.lineOf([]));
    }
    return decode(document, path);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw new UsageError(`${place(path, (error as { readonly line?: number }).line)}${error.message}`);
  }
}

/** `--config /etc/kube-proxy.conf:12: `: editors and terminals can jump to the line. */
function place(path: string, line: number | undefined): string {
  return `--config ${printable(path)}${line === undefined ? '' : `:${line}`}: `;
}

function decode({ value, lineOf }: ParsedDocument, file: string): ReadonlyMap<string, Given> {
  if (!isObject(value)) throw new UsageError(`is no object; it must be a ${KIND}`, lineOf([]));
  const { apiVersion, kind, ...rest } = value;
  if (apiVersion !== API_VERSION || kind !== KIND) {
    throw new UsageError(
      `is of apiVersion ${show(apiVersion ?? '')} and kind ${show(kind ?? '')}; it must be of ${API_VERSION} and ${KIND}`,
      lineOf([apiVersion === API_VERSION ? 'kind' : 'apiVersion']),
    );
  }
  const given = new Map<string, Given>();
  const unknown: Leaf[] = [];
  for (const { path, name, value: leaf } of leaves(rest, [])) {
    const setting = NAME_BY_PATH.get(name);
    if (setting === undefined && !PARENTS.has(name)) unknown.push({ path, name, value: leaf });
    else if (leaf !== null) {
      const line = lineOf(path);
      const texts = readField(name, line, () => (setting === undefined ? object(leaf) : SETTINGS[setting]?.read(leaf)));
      if (setting !== undefined && Array.isArray(texts)) given.set(setting, { texts, name, place: place(file, line) });
    }
  }
  refuse(unknown, lineOf);
  return given;
}

/** A field that holds no fields itself, is unknown, or should hold fields and does not. */
interface Leaf {
  readonly path: readonly string[];
  /** The path in one, such as `iptables.syncPeriod`. */
  readonly name: string;
  readonly value: unknown;
}

function* leaves(node: object, above: readonly string[]): Generator<Leaf> {
  for (const [key, value] of Object.entries(node)) {
    const path = [...above, key];
    // Quoted, so that a key with a dot is not taken for a path.
    const name = path.map((each) => (each.includes('.') ? JSON.stringify(each) : each)).join('.');
    if (PARENTS.has(name) && isObject(value)) yield* leaves(value, path);
    else yield { path, name, value };
  }
}

/** Adds to an error which field is wrong, and its line. */
function readField<T>(name: string, line: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(`${name} ${error.message}`, line) : error;
  }
}

/** A message names at most this many unknown fields. */
const SHOWN = 5;

function refuse(unknown: readonly Leaf[], lineOf: ParsedDocument['lineOf']): void {
  const [first, second] = unknown;
  if (first === undefined) return;
  // The first one's line is that of the message.
  const lines = unknown.map(({ path }, index) => (index === 0 ? '' : ` (line ${lineOf(path)})`));
  const shown = unknown.slice(0, SHOWN).map(({ name }, index) => `${show(name)}${lines[index]}`);
  const more = unknown.length > SHOWN ? ` and ${unknown.length - SHOWN} more` : '';
  const meant = suggest(first.name, [...NAME_BY_PATH.keys(), ...PARENTS]);
  const [what, them] = second === undefined ? ['unknown field', 'it'] : ['unknown fields', 'them'];
  const advice = meant === undefined ? `take ${them} out, or see docs/flags.md` : `did you mean ${meant}?`;
  throw new UsageError(`${what} ${shown.join(', ')}${more}: ${advice}`, lineOf(first.path));
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
  return dump(document, { sortKeys: true, forceQuotes: true, quoteStyle: 'double', lineWidth: -1 });
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
