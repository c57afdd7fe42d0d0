import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { UsageError } from '../../../src/config/usage-error.ts';
import { parseArguments } from '../../../src/operate/command/arguments.ts';
import type { Subcommand } from '../../../src/operate/command/subcommand.ts';

const FIND: Subcommand = {
  name: 'find',
  summary: 'find something',
  positional: '[WHAT]',
  options: [
    { name: 'numeric', alias: 'n', describe: 'a switch' },
    { name: 'all', alias: 'a', describe: 'another' },
    { name: 'namespace', alias: 'N', describe: 'a value', value: { placeholder: 'NAME' } },
    { name: 'output', alias: 'o', describe: 'one of two', value: { placeholder: 'FORMAT', choices: ['json', 'wide'] } },
  ],
};

function parsed(subcommand: Subcommand, ...argv: string[]): Record<string, unknown> {
  const { positional, values, switches } = parseArguments(subcommand, argv);
  return { positional, ...Object.fromEntries(values), switches: [...switches] };
}

describe('arguments of a subcommand', () => {
  test('may be given as elsewhere', () => {
    assert.deepEqual(parsed(FIND), { positional: undefined, switches: [] });
    assert.deepEqual(parsed(FIND, 'web', '-n'), { positional: 'web', switches: ['numeric'] });
    assert.deepEqual(parsed(FIND, '-n', 'web'), { positional: 'web', switches: ['numeric'] });
    assert.deepEqual(parsed(FIND, '-na', '-ojson'), {
      positional: undefined,
      output: 'json',
      switches: ['numeric', 'all'],
    });
    assert.deepEqual(parsed(FIND, '--namespace=a=b', '-o', 'wide'), {
      ...{ positional: undefined, namespace: 'a=b', output: 'wide', switches: [] },
    });
    assert.deepEqual(parsed(FIND, '-N', 'a', '-N', 'b')['namespace'], 'b');
    assert.deepEqual(parsed(FIND, '--namespace', '')['namespace'], '');
    assert.deepEqual(parsed(FIND, '--', '-n'), { positional: '-n', switches: [] });
    assert.deepEqual(parsed(FIND, '--namespace', '-5s')['namespace'], '-5s');
  });

  const one = { ...FIND, positional: 'WHAT' };
  const { positional: _, ...none } = FIND;
  const bad: readonly (readonly [argv: string[], complaint: RegExp, subcommand?: Subcommand])[] = [
    [['--namspace', 'a'], /^unknown option "--namspace": did you mean --namespace\?$/],
    [['-x'], /^unknown option "-x": see --help for those there are$/],
    [['-nx'], /^unknown option "-x"/],
    [['--constructor'], /^unknown option "--constructor"/],
    [['--__proto__=1'], /^unknown option "--__proto__"/],
    [['--numeric=yes'], /^--numeric "yes": it takes no value$/],
    [['--no-numeric'], /^unknown option "--no-numeric": did you mean --numeric/],
    [['--namespace'], /^a value is missing after --namespace$/],
    [['-o'], /^a value is missing after --output$/],
    [['-o', 'yaml'], /^--output "yaml": must be one of json, wide$/],
    [['web', 'dns'], /^unexpected argument "dns"; see --help$/],
    [[], /^WHAT is missing; see --help$/, one],
    [['web'], /^unexpected argument "web"; see --help$/, none],
  ];
  for (const [argv, complaint, subcommand = FIND] of bad) {
    test(`${argv.join(' ') || 'nothing'} is refused`, () => {
      assert.throws(
        () => parseArguments(subcommand, argv),
        (error) => error instanceof UsageError && complaint.test(error.message),
      );
    });
  }
});
