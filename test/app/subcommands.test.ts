import assert from 'node:assert/strict';
import { test } from 'node:test';
import { subcommands } from '../../src/app/subcommands.ts';
import { subcommandHelp } from '../../src/operate/command/help.ts';

test('every subcommand has code, and all code is of a subcommand', async () => {
  assert.deepEqual(Object.keys(subcommands.loaders).sort(), subcommands.table.map(({ name }) => name).sort());
  for (const load of Object.values(subcommands.loaders)) assert.equal(typeof (await load()), 'function');
});

test('no line of their help is wider than that of the program', () => {
  for (const subcommand of subcommands.table) {
    const long = subcommandHelp(subcommand)
      .split('\n')
      .filter((line) => line.length > 100);
    assert.deepEqual(long, [], subcommand.name);
  }
});

test('their options have one meaning each', () => {
  for (const { name, options } of subcommands.table) {
    const words = [...options.flatMap((option) => [option.name, option.alias ?? []].flat()), 'help', 'h'];
    assert.equal(new Set(words).size, words.length, name);
    assert.ok(options.every(({ alias = 'x' }) => alias.length === 1));
  }
});
