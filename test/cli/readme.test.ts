import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { parseCommandLine } from '../../src/cli/command-line.ts';

test('the README shows the flags as --help does', () => {
  const help = parseCommandLine(['--help']);
  assert.ok(help.kind === 'help');
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  assert.ok(
    readme.includes(help.text.trimEnd()),
    'paste the output of dist/kube-userspace-proxy --help into README.md',
  );
});
