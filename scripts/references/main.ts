/*
 * Writes the blocks of the documents that say what the program says itself. With `--check` it only tells which of them
 * would change.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Blocks, withBlocks } from './blocks.ts';
import { callNames } from './calls.ts';
import { flagTables } from './flags.ts';
import { metricTables } from './metrics.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const DOCUMENTS: Readonly<Record<string, Blocks>> = {
  'docs/flags.md': flagTables(),
  'docs/metrics.md': metricTables(),
  'docs/security.md': callNames(),
};

const isCheck = process.argv.includes('--check');
for (const [file, blocks] of Object.entries(DOCUMENTS)) {
  try {
    update(file, blocks);
  } catch (error) {
    process.stderr.write(`docs: ${file}: ${(error as Error).message}\n`);
    process.exitCode = 1;
  }
}

function update(file: string, blocks: Blocks): void {
  const path = join(ROOT, file);
  const document = readFileSync(path, 'utf8');
  const updated = withBlocks(document, blocks);
  if (updated === document) return;
  if (isCheck) throw new Error('out of date; run scripts/docs');
  writeFileSync(path, updated);
  process.stdout.write(`${file}\n`);
}
