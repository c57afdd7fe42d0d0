import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { chartOfVersion, readValues, valuesTable } from '../../../scripts/references/chart.ts';

const VALUES = `# About the file.

image:
  # -- where it is:
  # \`a|b\`
  repository: ""
# A comment for those who read the file.

# -- a map of anything
nodeSelector: {}
# -- fields
config: {}
`;

describe('values.yaml', () => {
  test('is what the table says: each value with its default and its comment', () => {
    assert.deepEqual(valuesTable(readValues(VALUES)).split('\n').slice(2), [
      '| `image.repository` | `""` | where it is: `a\\|b` |',
      '| `nodeSelector` | `{}` | a map of anything |',
      '| `config` | `{}` | fields |',
    ]);
  });

  test('a value without a comment is an error that names it', () => {
    assert.throws(() => readValues('a:\n  # plain\n  b: 1\n'), /^Error: a\.b in values\.yaml has no comment/);
  });
});

test('Chart.yaml has the version of the program, and says whether it is a release', () => {
  const text = 'version: 1\nappVersion: 1\nannotations:\n  artifacthub.io/prerelease: "false"\n';
  const expected = 'version: 2.0.0-rc.1\nappVersion: 2.0.0-rc.1\nannotations:\n  artifacthub.io/prerelease: "true"\n';
  assert.equal(chartOfVersion(text, '2.0.0-rc.1'), expected);
});
