import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { filesOf, ROOT, readFaults, titlePattern } from '../../scripts/faults/table.ts';

describe('docs/reliability.md', () => {
  const faults = readFaults();
  const proofs = faults.flatMap((fault) => fault.proofs);

  test('has each of the 36 faults once, in order, with a test', () => {
    assert.deepEqual(
      faults.map(({ number }) => number),
      Array.from({ length: 36 }, (_, index) => index + 1),
    );
    assert.deepEqual(
      faults.filter((fault) => fault.proofs.length === 0),
      [],
    );
  });

  test('names tests that there are', () => {
    const unknown = proofs.filter((proof) => {
      const call = new RegExp(`\\btest\\(\\s*(['"\`])${titlePattern(proof, '\\$\\{[^}]*\\}')}\\1`);
      return !call.test(readFileSync(join(ROOT, proof.file), 'utf8'));
    });
    assert.deepEqual(unknown, []);
  });

  test('names tests that .ci/run runs', () => {
    const scripts = ['test', 'test-unit', 'test-cluster'].map((name) =>
      readFileSync(join(ROOT, 'scripts', name), 'utf8'),
    );
    const patterns = scripts.flatMap((script) => script.match(/(?<=')test\/[^']+(?=')/g) ?? []);
    const run = new Set(patterns.flatMap((pattern) => globSync(pattern, { cwd: ROOT })));
    assert.deepEqual(
      proofs.filter((proof) => !filesOf(proof).every((file) => run.has(file))),
      [],
    );
  });
});
