import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isSubcommand, runSubcommand } from '../../../src/operate/command/run-subcommand.ts';
import type { RunSubcommand, Subcommand, Tools } from '../../../src/operate/command/subcommand.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { controlOf } from './control-of.ts';
import { RecordingTerminal } from './recording-terminal.ts';

const table: readonly Subcommand[] = [
  { name: 'say', summary: 'say something', positional: 'WORD', options: [], examples: [['say hello', 'says it']] },
  { name: 'shout', summary: 'say something, loudly', options: [{ name: 'loud', alias: 'l', describe: 'even louder' }] },
];
const tools: Tools = {
  clock: new ManualClock(),
  connect: () => controlOf(new FakeView()),
  onInterrupt: () => () => {},
};

async function run(argv: readonly string[], code: RunSubcommand = async () => 0) {
  const terminal = new RecordingTerminal();
  const given: (readonly string[])[] = [];
  const say: RunSubcommand = (argv, ...rest) => {
    given.push(argv);
    return code(argv, ...rest);
  };
  const loaders = { say: async () => say, shout: () => Promise.reject(new Error('it cannot be loaded')) };
  const exit = await runSubcommand(argv, { table, loaders }, terminal, tools);
  return { exit, given, printed: terminal.printed, complained: terminal.complained };
}

test('what does not begin with a dash is a subcommand', () => {
  assert.equal(isSubcommand(['list']), true);
  assert.equal(isSubcommand(['']), true);
  assert.equal(isSubcommand([]), false);
  assert.equal(isSubcommand(['--kubeconfig', 'list']), false);
  assert.equal(isSubcommand(['-v', '4']), false);
});

describe('a subcommand', () => {
  test('is over when all that it says has been taken', async () => {
    const terminal = new RecordingTerminal();
    const loaders = {
      say:
        async (): Promise<RunSubcommand> =>
        async (_argv, { out }) => {
          out('hello\n');
          throw new Error('and no more');
        },
    };
    await runSubcommand(['say', 'hello'], { table, loaders }, terminal, tools);
    assert.equal(terminal.flushed, 'hello\nkube-userspace-proxy say: and no more\n');
    await runSubcommand(['nothing'], { table, loaders }, terminal, tools);
    assert.match(terminal.flushed, /unknown subcommand "nothing"/);
  });

  test('gets what follows its name, and says how it ends', async () => {
    const { exit, given, complained } = await run(['say', 'hello', '-x'], async () => 7);
    assert.equal(exit, 7);
    assert.deepEqual(given, [['hello', '-x']]);
    assert.equal(complained, '');
  });

  test('that fails is one line on stderr, which no terminal obeys', async () => {
    const { exit, complained } = await run(['say'], async () => {
      throw new Error('not \u001b[31mthere\nat all');
    });
    assert.equal(exit, 1);
    assert.equal(complained, 'kube-userspace-proxy say: not \\u001b[31mthere\\u000aat all\n');
    assert.deepEqual(await run(['shout']), {
      ...{ exit: 1, given: [], printed: '', complained: 'kube-userspace-proxy shout: it cannot be loaded\n' },
    });
  });

  test('that there is not is refused, with the one that was meant', async () => {
    assert.match(
      (await run(['shut'])).complained,
      /^kube-userspace-proxy: unknown subcommand "shut": did you mean shout\?\n$/,
    );
    for (const name of ['remove', '', 'constructor', '__proto__']) {
      const { exit, complained, given } = await run([name]);
      assert.equal(exit, 1);
      assert.match(complained, /unknown subcommand .*: there are say, shout; flags begin with --\n$/);
      assert.deepEqual(given, []);
    }
  });

  test('shows its help, and does nothing', async () => {
    for (const argv of [
      ['say', '--help'],
      ['say', 'hello', '-h'],
    ]) {
      const { exit, given, printed } = await run(argv);
      assert.equal(exit, 0);
      assert.deepEqual(given, []);
      assert.equal(
        printed,
        [
          'Usage: kube-userspace-proxy say [options] WORD',
          '',
          'Say something.',
          '',
          'Options:',
          '  -h, --help  show this help',
          '',
          'Examples:',
          '  kube-userspace-proxy say hello',
          '      says it',
          '',
        ].join('\n'),
      );
    }
    assert.match((await run(['shout', '-h'])).printed, /^ {2}-l, --loud {2}even louder$/m);
  });
});
