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

/** A Chart.yaml as that of this version of the program. */
export function chartOfVersion(text: string, version: string): string {
  return text
    .replace(/^version: .*$/m, `version: ${version}`)
    .replace(/^appVersion: .*$/m, `appVersion: ${version}`)
    .replace(/^( {2}artifacthub\.io\/prerelease: ).*$/m, `$1"${version.includes('-')}"`);
}
