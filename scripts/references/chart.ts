import { SETTINGS } from '../../src/config/flags.ts';
import { isObject } from '../../src/util/untrusted.ts';
import { parseDocuments } from '../../src/util/yaml.ts';
import { code, table } from './table.ts';

/** One value of the chart that a comment in values.yaml describes. */
export interface ChartValue {
  readonly path: readonly string[];
  /** Its type is that of the value. */
  readonly fallback: unknown;
  readonly describe: string;
}

/** Fields of the program's configuration file: their types are the program's own. */
const CONFIGURATION = 'config';

/** The comments and defaults of a values.yaml. Throws an Error that names a value without a comment. */
export function readValues(text: string): ChartValue[] {
  const [document] = parseDocuments(text);
  if (document === undefined || !isObject(document.value)) throw new Error('values.yaml is no object');
  const lines = text.split('\n');
  const values: ChartValue[] = [];
  const visit = (node: object, above: readonly string[]) => {
    for (const [key, value] of Object.entries(node)) {
      const path = [...above, key];
      const describe = commentAbove(lines, document.lineOf(path) - 1);
      if (describe !== undefined) values.push({ path, fallback: value, describe });
      else if (isObject(value)) visit(value, path);
      else throw new Error(`${path.join('.')} in values.yaml has no comment that begins with "# --"`);
    }
  };
  visit(document.value, []);
  return values;
}

/** What follows `# --` in the comment that ends above this line, counted from 0. */
function commentAbove(lines: readonly string[], line: number): string | undefined {
  let first = line;
  while (/^\s*#/.test(lines[first - 1] ?? '')) first -= 1;
  const words = lines.slice(first, line).map((each) => each.trim().replace(/^#\s*/, ''));
  return words[0]?.startsWith('-- ') ? words.join(' ').slice('-- '.length) : undefined;
}

export function valuesTable(values: readonly ChartValue[]): string {
  return table(
    ['value', 'default', 'meaning'],
    values.map(({ path, fallback, describe }) => [code(path.join('.')), code(JSON.stringify(fallback)), describe]),
  );
}

interface Schema {
  readonly type?: string;
  readonly properties?: Record<string, Schema>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
}

/**
 * A JSON schema that knows no other values than these, so that Helm names a typing error. A map or a list that
 * Kubernetes knows may hold anything: the API server looks into it.
 */
export function valuesSchema(values: readonly ChartValue[]): Schema & { readonly $schema: string } {
  const known = values.map(({ path, fallback }) => ({
    path,
    schema: path.join('.') === CONFIGURATION ? configurationSchema() : schemaOf(fallback),
  }));
  // Helm puts "global" into the values of every chart that is a part of another one.
  const all = [...known, { path: ['global'], schema: { type: 'object' } }];
  return { $schema: 'http://json-schema.org/draft-07/schema#', ...treeOf(all) };
}

/** Of the fields that a configuration file may have. */
function configurationSchema(): Schema {
  return treeOf(
    Object.values(SETTINGS).flatMap(({ field, parse, show, fallback }) => {
      if (field === undefined) return [];
      const shown = show(parse(fallback));
      // The program shows an empty list as null, and leaves out what older kube-proxies do not know.
      return { path: field.split('.'), schema: shown === undefined ? {} : schemaOf(shown ?? []) };
    }),
  );
}

function schemaOf(value: unknown): Schema {
  if (Array.isArray(value)) return { type: 'array' };
  return { type: typeof value };
}

/** Leaves in objects that have nothing else. */
function treeOf(leaves: readonly { readonly path: readonly string[]; readonly schema: Schema }[]): Schema {
  const properties: Record<string, Schema> = {};
  for (const [key, below] of Map.groupBy(leaves, ({ path: [key = ''] }) => key)) {
    const [first] = below;
    if (first?.path.length === 1) properties[key] = first.schema;
    else properties[key] = treeOf(below.map(({ path, schema }) => ({ path: path.slice(1), schema })));
  }
  return { type: 'object', properties, additionalProperties: false };
}

/** A Chart.yaml as that of this version of the program. */
export function chartOfVersion(text: string, version: string): string {
  return text
    .replace(/^version: .*$/m, `version: ${version}`)
    .replace(/^appVersion: .*$/m, `appVersion: ${version}`)
    .replace(/^( {2}artifacthub\.io\/prerelease: ).*$/m, `$1"${version.includes('-')}"`);
}
