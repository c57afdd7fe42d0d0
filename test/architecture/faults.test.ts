import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ROOT, readFaults, titlePattern } from '../../scripts/faults/table.ts';

describe('docs/reliability.md', () => {
  const faults = readFaults();
  const proofs = faults.flatMap((fault) => fault.proofs);

  test('has each of the 39 faults once, in order, with a test', () => {
    assert.deepEqual(
      faults.map(({ number }) => number),
      Array.from({ length: 39 }, (_, index) => index + 1),
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
});
