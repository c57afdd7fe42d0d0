/*
 * Writes what documents and the chart say after the program itself. With `--check` it only tells which of them would
 * change.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import packageJson from '../../package.json' with { type: 'json' };
import { type Blocks, withBlocks } from './blocks.ts';
import { callNames } from './calls.ts';
import { chartOfVersion, readValues, valuesTable } from './chart.ts';
import { valuesSchema } from './chart-schema.ts';
import { flagTables } from './flags.ts';
import { interfaceNames, withNames } from './interface.ts';
import { metricTables } from './metrics.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const CHART = 'deploy/helm/kube-userspace-proxy';
const values = readValues(readFileSync(join(ROOT, CHART, 'values.yaml'), 'utf8'));

/** What becomes of the text that each file has. */
const FILES: Readonly<Record<string, (text: string) => string>> = {
  'docs/flags.md': blocks(flagTables()),
  'docs/metrics.md': blocks(metricTables()),
  'docs/security.md': blocks(callNames()),
  'docs/interface.txt': (text) => withNames(text, interfaceNames()),
  [`${CHART}/README.md`]: blocks({ values: valuesTable(values) }),
  [`${CHART}/values.schema.json`]: () => `${JSON.stringify(valuesSchema(values), undefined, 2)}\n`,
  [`${CHART}/Chart.yaml`]: (text) => chartOfVersion(text, packageJson.version),
};

const isCheck = process.argv.includes('--check');
for (const [file, updated] of Object.entries(FILES)) {
  try {
    update(file, updated);
  } catch (error) {
    process.stderr.write(`docs: ${file}: ${(error as Error).message}\n`);
    process.exitCode = 1;
  }
}

function blocks(texts: Blocks): (document: string) => string {
  return (document) => withBlocks(document, texts);
}

function update(file: string, updated: (text: string) => string): void {
  const path = join(ROOT, file);
  const text = readFileSync(path, 'utf8');
  const wanted = updated(text);
  if (wanted === text) return;
  if (isCheck) throw new Error('out of date; run scripts/docs');
  writeFileSync(path, wanted);
  process.stdout.write(`${file}\n`);
}
