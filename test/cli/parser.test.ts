import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import packageJson from '../../package.json' with { type: 'json' };
import { COMMANDS } from '../../src/app/subcommands.ts';
import { type Command, command } from '../../src/cli/command.ts';
import { parse, runProgram } from '../../src/cli/parser.ts';
import { UsageError } from '../../src/config/usage-error.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { controlOf } from './control-of.ts';
import { RecordingTerminal } from './recording-terminal.ts';

const FIND = command({
  name: 'find',
  summary: 'find something',
  argument: '[WHAT]',
  options: {
    numeric: { alias: 'n', type: 'boolean', describe: 'a switch' },
    all: { alias: 'a', type: 'boolean', conflicts: 'namespace', describe: 'another' },
    namespace: { alias: 'N', type: 'string', nargs: 1, describe: 'a value' },
    order: { nargs: 1, implies: 'all', type: 'string' },
    output: { alias: 'o', nargs: 1, choices: ['json', 'wide'], describe: 'one of two' },
  },
  examples: [['find web', 'finds it']],
  run: async () => 0,
});
const SAY = command({ name: 'say', summary: 'say something', argument: 'WORD', options: {}, run: async () => 0 });
const LOOK = command({ name: 'look', summary: 'look around', takesFlags: true, options: {}, run: async () => 0 });
const TABLE: readonly Command[] = [FIND, SAY, LOOK].map((each) => each as unknown as Command);

function given(...argv: string[]): Record<string, unknown> {
  let found: Record<string, unknown> = {};
  parse(argv, TABLE, ({ name }, { argument, flags, ...rest }) => {
    found = { name, ...(argument && { argument }), ...(flags.size > 0 && { flags: Object.fromEntries(flags) }) };
    for (const key of Object.keys(FIND.options)) if (rest[key] !== undefined) found[key] = rest[key];
  });
  return found;
}

describe('a command gets what follows its name', () => {
  const cases: readonly (readonly [argv: string, expected: Record<string, unknown>])[] = [
    ['find', {}],
    ['find web -n', { argument: 'web', numeric: true }],
    ['find -n web', { argument: 'web', numeric: true }],
    ['find -na -ojson', { numeric: true, all: true, output: 'json' }],
    ['find --namespace=a=b -o wide', { namespace: 'a=b', output: 'wide' }],
    ['find -N a -N b', { namespace: 'b' }],
    ['find --namespace=', { namespace: '' }],
    ['find --namespace -5s', { namespace: '-5s' }],
    ['find --numeric=false', { numeric: false }],
    ['say -1', { argument: '-1' }],
    ['find find', { argument: 'find' }],
    [
      'look --cluster-cidr a --cluster_cidr=b --cleanup -v4',
      { flags: { 'cluster-cidr': ['a', 'b'], cleanup: ['true'], v: ['4'] } },
    ],
  ];
  for (const [argv, expected] of cases) {
    const [name = '', ...rest] = argv.split(' ');
    test(argv, () => assert.deepEqual(given(name, ...rest), { name, ...expected }));
  }
});

describe('unknown words are refused in one sentence', () => {
  const cases: readonly (readonly [argv: string, complaint: RegExp])[] = [
    ['find --namspace a', /^unknown flag "--namspace": did you mean --namespace\?$/],
    ['find -x', /^unknown flag "-x": see --help for those there are$/],
    ['find --constructor', /^unknown flag "--constructor"/],
    ['find --__proto__=1', /^unknown flag "--__proto__=1"/],
    ['find --no-numeric', /^unknown flag "--no-numeric": did you mean --numeric\?$/],
    ['find --cleanup', /^unknown flag "--cleanup"/],
    ['find --numeric=yes', /^--numeric=yes: must be true or false$/],
    ['find --namespace', /^a value is missing after --namespace$/],
    ['find -N', /^a value is missing after -N$/],
    ['find -o yaml', /^--output "yaml": must be one of "json", "wide"$/],
    ['find -a -N x', /^--all and --namespace exclude each other: give one of them$/],
    ['find --order x', /^an option is missing that another one needs: order -> all$/],
    ['find web dns', /^unexpected argument "dns"/],
    ['say', /^WORD is missing; see --help$/],
    ['look web', /^unexpected argument "web"/],
    ['look --bind-adress x', /^unknown flag "--bind-adress": did you mean --bind-address\?$/],
    ['fnd', /^unknown subcommand "fnd": did you mean find\?$/],
    ['remove', /^unknown subcommand "remove": there are find, say, look; flags begin with --$/],
    ['constructor', /^unknown subcommand "constructor"/],
    ['-v 4 find', /^find is a subcommand, which comes first: kube-userspace-proxy find --help$/],
    ['--kubeconfig a b', /^unexpected argument "b"/],
  ];
  for (const [argv, complaint] of cases) {
    test(argv, () => {
      assert.throws(
        () => parse(argv.split(' '), TABLE),
        (error) => error instanceof UsageError && complaint.test(error.message),
      );
    });
  }
});

describe('help, version and unexpected words', () => {
  const output = (...argv: string[]) => parse(argv, COMMANDS).output ?? '';

  test('of a command', () => {
    for (const argv of [
      ['find', '--help'],
      ['find', 'web', '-h'],
    ]) {
      const text = parse(argv, TABLE).output ?? '';
      assert.match(text, /^Usage: kube-userspace-proxy find \[options\] \[WHAT\]\n\nFind something\.\n/);
      assert.match(text, /^ {2}-o, --output +one of two +\[choices: "json", "wide"\]$/m);
      assert.match(text, /^ {2}kube-userspace-proxy find web +finds it$/m);
      assert.doesNotMatch(text, /--kubeconfig/);
    }
  });

  test('of the program have every command, and flags with their defaults', () => {
    const help = output('--help');
    for (const { name } of COMMANDS) assert.match(help, new RegExp(`^ {2}kube-userspace-proxy ${name} `, 'm'));
    assert.match(help, /^ {6}--bind-address .*\n(.*\n){0,3}.*\[default: 0\.0\.0\.0\]$/m);
    assert.match(help, /^Flags of kube-proxy that are checked and have no effect: --kube-api-content-type/m);
    assert.doesNotMatch(help, /^ +--ipvs-strict-arp/m);
    assert.equal(output('--cleanup', '-h'), help);
    const long = [help, ...COMMANDS.map(({ name }) => output(name, '--help'))].flatMap((text) => text.split('\n'));
    assert.deepEqual(
      long.filter((line) => line.length > 100),
      [],
    );
  });

  test('the version is that of package.json', () => {
    assert.equal(output('--version'), `kube-userspace-proxy v${packageJson.version}`);
  });

  test('a word that a command does not take is refused with what it takes', () => {
    const cases: readonly (readonly [argv: string[], complaint: RegExp])[] = [
      [['status', 'extra'], /^unexpected argument "extra": status takes options only$/],
      [['drain', 'a', 'b'], /^unexpected argument "b": drain takes only IP\[:PORT\]\|NAMESPACE\/SERVICE\[:PORT\]$/],
      [['list', ''], /^\[NAMESPACE\[\/SERVICE\[:PORT\]\]\] is empty; see --help$/],
    ];
    for (const [argv, complaint] of cases) {
      assert.throws(
        () => output(...argv),
        (error) => error instanceof UsageError && complaint.test(error.message),
        argv.join(' '),
      );
    }
  });
});

describe('the program', () => {
  async function run(argv: readonly string[], act: Command['run'] = async () => 7) {
    const terminal = new RecordingTerminal();
    const commands = TABLE.map((each) => ({ ...each, run: act }));
    const tools = { clock: new ManualClock(), connect: () => controlOf(new FakeView()), onInterrupt: () => () => {} };
    const exit = await runProgram(argv, { commands, run: async ({ size }) => 100 + size, terminal, tools });
    // All of it has been taken before the process ends.
    assert.equal(terminal.flushed, terminal.printed + terminal.complained);
    return { exit, printed: terminal.printed, complained: terminal.complained };
  }

  test('ends with the code of its command, or of a run', async () => {
    assert.deepEqual(await run(['say', 'hello']), { exit: 7, printed: '', complained: '' });
    assert.equal((await run(['-v', '4'])).exit, 101);
  });

  test('reports a failure in one line without control characters', async () => {
    const failed = await run(['say', 'hello'], async (_, { out }) => {
      out('hello\n');
      throw new Error('not \u001b[31mthere\nat all');
    });
    const complained = 'kube-userspace-proxy say: not \\u001b[31mthere\\u000aat all\n';
    assert.deepEqual(failed, { exit: 1, printed: 'hello\n', complained });
    assert.equal((await run(['say'])).complained, 'kube-userspace-proxy say: WORD is missing; see --help\n');
    assert.match((await run(['nothing'])).complained, /^kube-userspace-proxy: unknown subcommand "nothing": /);
  });

  test('shows help on stdout, and does nothing', async () => {
    const { exit, printed } = await run(['say', '--help']);
    assert.equal(exit, 0);
    assert.match(printed, /^Usage: .*say \[options\] WORD\n/);
  });
});
