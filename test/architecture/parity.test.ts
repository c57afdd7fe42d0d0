import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { faultsOf, type ParityRow, type Proof, parityRows } from './parity-doc.ts';
import { testCases } from './test-titles.ts';

const root = join(import.meta.dirname, '../..');

describe('docs/parity.md', () => {
  const rows = parityRows(readFileSync(join(root, 'docs/parity.md'), 'utf8'));

  test('answers every row, gives a reason for every no, and a test for everything else', () => {
    assert.ok(rows.length > 50, `${rows.length} rows`);
    assert.deepEqual(rows.flatMap(faultsOf), []);
  });

  test('has each feature once', () => {
    const features = rows.map(({ feature }) => feature);
    assert.deepEqual(
      features.filter((feature, index) => features.indexOf(feature) !== index),
      [],
    );
  });

  test('names tests that are there, by their exact titles, and that run', () => {
    const missing = rows.flatMap(({ line, proofs }) =>
      proofs.filter((proof) => !isRun(proof)).map(({ file, title }) => `line ${line}: ${file} “${title}”`),
    );
    assert.deepEqual(missing, []);
  });
});

function isRun({ file, title }: Proof): boolean {
  const path = join(root, file);
  return existsSync(path) && testCases(readFileSync(path, 'utf8')).some((it) => it.runs && it.title === title);
}

describe('the titles of tests', () => {
  const titlesOf = (source: string) =>
    testCases(source)
      .filter(({ runs }) => runs)
      .map(({ title }) => title);

  test('are read from every form that they are written in', () => {
    assert.deepEqual(
      titlesOf(`
        test('plain', () => {});
        it("double, it's fine", async (t) => {});
        test('escaped \\'quotes\\'', () => {});
        test(\`from \${at({ a: 1 })} to \${b}\`, { timeout: 1 }, async () => {});
        test(
          'on a line of its own', { skip: isRoot ? false : 'needs root' },
          function () {});
        /a/.test('no test');
        describe('no test either', () => {});
      `),
      ['plain', "double, it's fine", "escaped 'quotes'", 'from … to …', 'on a line of its own'],
    );
  });

  test('are not those of tests that are skipped or left for later', () => {
    assert.deepEqual(
      titlesOf(`
        const LATER = { todo: 'later' };
        test('a', { skip: true }, () => {});
        test('b', { timeout: 1, skip: 'why' }, () => {});
        test('c', LATER, () => {});
        test.skip('d', () => {});
        test('e', () => {
          use({ skip: true });
        });
      `),
      ['e'],
    );
  });
});

describe('a row', () => {
  const read = (row: string): readonly ParityRow[] =>
    parityRows(`| feature | here | how, or why not | shown by |\n| --- | --- | --- | --- |\n${row}\n`);

  test('is read with its tests', () => {
    const [row] = read('| a | yes |  | [x](../test/x.test.ts) “one”<br>[y](../test/y.ts) “two (2)” |');
    assert.deepEqual(row?.proofs, [
      { file: 'test/x.test.ts', title: 'one' },
      { file: 'test/y.ts', title: 'two (2)' },
    ]);
    assert.deepEqual(row && faultsOf(row), []);
  });

  for (const [row, fault] of [
    ['| a | maybe | why | [x](../test/x.test.ts) “one” |', /answers "maybe"/],
    ['| a |  | why | [x](../test/x.test.ts) “one” |', /answers ""/],
    ['| a | no |  |  |', /says no without/],
    ['| a | differs |  | [x](../test/x.test.ts) “one” |', /says differs without/],
    ['| a | yes | how |  |', /names no test/],
    ['| a | yes | how | test/x.test.ts |', /has "test\/x.test.ts"/],
    ['|  | no | why |  |', /names no feature/],
  ] as const) {
    test(`is wrong as ${row}`, () => {
      const [parsed] = read(row);
      assert.match(faultsOf(parsed as ParityRow).join(), fault);
    });
  }

  test('with a cell too many is refused', () => {
    assert.throws(() => read('| a | yes | how | [x](../test/x.test.ts) “one | two” |'), /line 3: 5 cells/);
  });
});
