import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withBlocks } from '../../../scripts/references/blocks.ts';

const document = (one: string, other: string) => `# Title

By hand, with $& and \`<!-- end one -->\`.

<!-- begin one, written by scripts/docs -->
${one}
<!-- end one -->

## Next

<!-- begin the-other, written by scripts/docs -->
${other}
<!-- end the-other -->
`;

test('what stands between the comments is written, what stands around them stays', () => {
  const written = document('\n| 1 |\n', '\n| $& |\n');
  const blocks = { one: '| 1 |', 'the-other': '| $& |' };
  assert.equal(withBlocks(document('| old |\n\n| older |', ''), blocks), written);
  assert.equal(withBlocks(written, blocks), written);
});

test('a block too few, too many or without its end is an error that names those that there are', () => {
  const both = { one: '', 'the-other': '' };
  assert.throws(() => withBlocks(document('', ''), { one: '' }), /"one", "the-other" are there, not "one"/);
  assert.throws(() => withBlocks(document('', ''), { ...both, third: '' }), /not "one", "the-other", "third"/);
  assert.throws(() => withBlocks(document('', '') + document('', ''), both), /"one", "the-other", "one", "the-other"/);
  const endless = document('', '').replace('<!-- end the-other -->', '');
  assert.throws(() => withBlocks(endless, both), /"one" are there.*between "<!-- begin NAME/);
});
