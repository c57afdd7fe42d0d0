import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT } from '../../scripts/faults/table.ts';

const SCRIPTS = ['test-unit', 'test', 'test-variants', 'test-cluster', 'test-monitoring', 'test-browser'];

test('each test file is run by one of the scripts that .ci/run runs', () => {
  const texts = SCRIPTS.map((name) => readFileSync(`${ROOT}/scripts/${name}`, 'utf8'));
  const patterns = texts.flatMap((text) => text.match(/(?<=')test\/[^']+(?=')/g) ?? []);
  const runs = patterns.flatMap((pattern) => globSync(pattern, { cwd: ROOT })).sort();
  assert.deepEqual(runs, globSync('test/**/*.test.ts', { cwd: ROOT }).sort());
});
