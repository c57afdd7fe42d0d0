import yargs, { type Argv, type Options } from 'yargs';
import { ACCEPTED_FLAGS } from '../config/accepted.ts';
import type { FlagTexts } from '../config/configure.ts';
import { FLAGS } from '../config/flags.ts';
import type { AcceptedSetting, Flag } from '../config/setting.ts';
import { UsageError } from '../config/usage-error.ts';
import { PROGRAM, VERSION } from '../config/version.ts';
import { suggest } from '../util/suggest.ts';
import { messageOf, printable } from '../util/text.ts';
import type { Command, Given, OptionTable, Terminal, Tools } from './command.ts';
import { COMPLETIONS, completed } from './completion.ts';
import { capitalized } from './format.ts';

const WIDTH = 100;
const ACCEPTED = Object.keys(ACCEPTED_FLAGS);
const GENERAL: readonly string[] = ['help', 'version'];

/** The flags of a run in the words of yargs. Their values stay text here: a configuration file decides first. */
export const FLAG_OPTIONS: OptionTable = Object.fromEntries([
  ...Object.entries<Flag<unknown>>(FLAGS).map(([name, flag]): [string, Options] => {
    const { group, describe, choices, isSwitch } = flag;
    const defaultDescription = flag.fallbackText ?? flag.fallback[0];
    return [name, { group, describe, defaultDescription, ...(choices && { choices }), ...valueOptions(isSwitch) }];
  }),
  ...Object.entries<AcceptedSetting<unknown>>(ACCEPTED_FLAGS).map(([name, { isSwitch }]): [string, Options] => {
    return [name, { hidden: true, ...valueOptions(isSwitch) }];
  }),
]);

/** A switch has no type: yargs would take `--cleanup=maybe` of a boolean for false. */
function valueOptions(isSwitch: true | undefined): Options {
  return { global: false, ...(!isSwitch && { nargs: 1 }) };
}

export interface Program {
  readonly commands: readonly Command[];
  /** What the program does without a command. Resolves with the exit code once it is known. */
  readonly run: (flags: FlagTexts) => Promise<number | undefined>;
  readonly terminal: Terminal;
  readonly tools: Tools;
}

/**
 * Does what the arguments after the program's name ask for. Resolves with the exit code when all output has been taken;
 * `undefined` while the proxy runs. A failure is 1, with a sentence on stderr.
 */
export async function runProgram(argv: readonly string[], program: Program): Promise<number | undefined> {
  const { commands, run, terminal, tools } = program;
  const named = commands.find(({ name }) => name === argv[0]);
  try {
    let called: (() => Promise<number>) | undefined;
    const { output, flags } = parse(argv, commands, (command, given) => {
      called = () => command.run(given, terminal, tools);
    });
    if (output !== undefined) {
      const isCompletion = argv[0] === COMPLETIONS;
      terminal.out(`${isCompletion ? await completed(output, argv, commands, tools) : output}\n`);
      return 0;
    }
    return await (called === undefined ? run(flags) : called());
  } catch (error) {
    // The message may hold what came over a socket.
    terminal.err(`${[PROGRAM, ...(named ? [named.name] : [])].join(' ')}: ${printable(messageOf(error))}\n`);
    return 1;
  } finally {
    await terminal.flush();
  }
}

type Parsed = Readonly<Record<string, unknown>> & { readonly _: readonly (string | number)[] };

/**
 * Only reads the arguments. `output` is what `--help`, `--version` and completions print; `onCommand` gets what a
 * command was given. Throws {@link UsageError}.
 */
export function parse(
  given: readonly string[],
  commands: readonly Command[],
  onCommand: (command: Command, given: Given<OptionTable>) => void = () => {},
): { readonly output?: string; readonly flags: FlagTexts } {
  const argv = given.map((argument) => normalized(argument, commands));
  const parser = createParser();
  let called: Command | undefined;
  for (const command of commands) {
    const { name, summary, argument, options, takesFlags, examples = [] } = command;
    parser.command(
      name,
      summary,
      (own) =>
        own
          .usage(`Usage: ${['$0', name, '[options]', argument ?? ''].join(' ').trim()}\n\n${capitalized(summary)}.`)
          .options(takesFlags ? { ...options, ...FLAG_OPTIONS } : options)
          .example(examples.map(([example, what]) => [`$0 ${example}`, what] as const)),
      () => {
        called = command;
      },
    );
  }
  let output = '';
  const parsed: Parsed = parser.parseSync(argv, {}, (_error, _argv, text) => {
    output = text;
  });
  const flags = flagTextsOf(parsed);
  if (output !== '' || 'get-yargs-completions' in parsed) return { output, flags };
  const argument = oneArgument(parsed, argv, called, commands);
  if (called !== undefined) {
    const last = Object.entries(parsed).map(([key, value]) => [key, Array.isArray(value) ? value.at(-1) : value]);
    onCommand(called, { ...Object.fromEntries(last), argument, flags });
  }
  return { flags };
}

function createParser(): Argv {
  return (
    yargs()
      .scriptName(PROGRAM)
      .usage(
        'Usage: $0 [--kubeconfig FILE | --manifests PATH] [flags]\n\n' +
          'Balances the TCP and UDP connections to Kubernetes Services over their endpoints, on this node.',
      )
      .locale('en')
      .updateStrings(SENTENCES)
      .wrap(WIDTH)
      // With this and the callback of parseSync, yargs neither prints nor exits.
      .fail((message, error) => {
        throw message
          ? new UsageError(
              message
                .replaceAll(/\s+/g, ' ')
                .replace(/ --(\w)$/, ' -$1')
                .trim(),
            )
          : error;
      })
      .parserConfiguration({
        'boolean-negation': false,
        'camel-case-expansion': false,
        'parse-numbers': false,
        'parse-positional-numbers': false,
        'strip-aliased': true,
        // `--udp-timeout -5s` is a wrong duration, not a flag "-5s".
        'nargs-eats-options': true,
        // In place of .strict(). It keeps what was typed, so that a suggestion can be made, and it keeps
        // `--constructor` out of yargs' own objects, where it makes yargs throw.
        'unknown-options-as-args': true,
      })
      .help()
      .alias('help', 'h')
      .version(`${PROGRAM} v${VERSION}`)
      // The completion script calls the program with this one.
      .option('get-yargs-completions', { hidden: true })
      .options(FLAG_OPTIONS)
      .epilogue(
        `Flags of kube-proxy that are checked and have no effect: ${ACCEPTED.map((name) => `--${name}`).join(', ')}.`,
      )
      .group([...GENERAL], 'General:')
  );
}

/** yargs' sentences in the tone of the others. */
const SENTENCES: Readonly<Record<string, string>> = {
  'Commands:': 'Subcommands, each with its own --help:',
  'Show help': 'show this help',
  'Show version number': 'show the version',
  'Not enough arguments following: %s': 'a value is missing after --%s',
  'Arguments %s and %s are mutually exclusive': '--%s and --%s exclude each other: give one of them',
  'Implications failed:': 'an option is missing that another one needs:',
  'Invalid values:': ' ',
  'Argument: %s, Given: %s, Choices: %s': '--%s %s: must be one of %s',
};

/** `--log_dir` is `--log-dir`, as with upstream's WordSepNormalizeFunc; `-ojson` is `-o=json`. */
function normalized(argument: string, commands: readonly Command[]): string {
  const [, letter, value] = /^-([A-Za-z])([^=].*)$/s.exec(argument) ?? [];
  const options = commands.flatMap((command) => Object.values(command.options));
  if (letter && options.some(({ alias, nargs }) => alias === letter && nargs === 1)) return `-${letter}=${value}`;
  const [, word = ''] = /^--([^=]+)/.exec(argument) ?? [];
  const dashed = word.replaceAll('_', '-');
  return Object.hasOwn(FLAG_OPTIONS, dashed) ? `--${dashed}${argument.slice(2 + word.length)}` : argument;
}

/** Every value of each flag that was given, in order. */
function flagTextsOf(parsed: Parsed): FlagTexts {
  const given = Object.entries(parsed).filter(([name]) => Object.hasOwn(FLAG_OPTIONS, name));
  return new Map(given.map(([name, value]) => [name, [value].flat().map(String)]));
}

/**
 * The arguments that are no options, with a space between two, or an empty text. Throws {@link UsageError} for an
 * unknown word.
 */
function oneArgument(
  parsed: Parsed,
  argv: readonly string[],
  command: Command | undefined,
  commands: readonly Command[],
): string {
  const options = { ...command?.options, ...(command === undefined || command.takesFlags ? FLAG_OPTIONS : {}) };
  const known = Object.entries(options).flatMap(([name, { alias = [] }]) => [name, alias].flat());
  // "-bind-address" comes back as the letters b, i, n, d.
  const strange = Object.keys(parsed).filter((key) => !['_', '$0', ...GENERAL, ...known].includes(key));
  const words = [
    ...strange.map((key) => argv.find((word) => word.startsWith(`-${key}`)) ?? `--${key}`),
    ...parsed._.map(String),
  ];
  const misplaced = words.find((word) => word !== argv[0] && commands.some(({ name }) => name === word));
  if (misplaced !== undefined && (command === undefined || argv[0] !== command.name)) {
    throw new UsageError(`${misplaced} is a subcommand, which comes first: ${PROGRAM} ${misplaced} --help`);
  }
  const unknown = words.find((word) => /^-\D/.test(word));
  if (unknown !== undefined) throw unknownFlag(unknown, [...known, ...GENERAL]);
  const expected = command?.argument?.split(' ') ?? [];
  const own = words.slice(command ? 1 : 0);
  const [given, surplus] = [own.slice(0, expected.length), own[expected.length]];
  if (surplus !== undefined) {
    throw command ? unexpected(surplus, command) : unknownCommand(surplus, argv, commands);
  }
  const empty = expected[given.indexOf('')];
  if (empty !== undefined) throw new UsageError(`${empty} is empty; see --help`);
  for (const [name, { type }] of Object.entries(options)) {
    const wrong = argv.find((word) => type === 'boolean' && word.startsWith(`--${name}=`));
    // yargs takes any text but "true" for false.
    if (wrong && !/=(true|false)$/.test(wrong)) throw new UsageError(`${wrong}: must be true or false`);
  }
  const missing = expected[given.length];
  if (missing?.startsWith('[') === false) throw new UsageError(`${missing} is missing; see --help`);
  return given.join(' ');
}

function unknownFlag(given: string, known: readonly string[]): UsageError {
  const meant = suggest(given.replace(/^-+/, '').replace(/=.*$/s, ''), known);
  const advice = meant === undefined ? 'see --help for those there are' : `did you mean --${meant}?`;
  return new UsageError(`unknown flag ${JSON.stringify(given)}: ${advice}`);
}

function unknownCommand(given: string, [first]: readonly string[], commands: readonly Command[]): UsageError {
  if (given !== first) return unexpected(given);
  const names = commands.map(({ name }) => name);
  const meant = suggest(given, names);
  const advice = meant === undefined ? `there are ${names.join(', ')}; flags begin with --` : `did you mean ${meant}?`;
  return new UsageError(`unknown subcommand ${JSON.stringify(given)}: ${advice}`);
}

function unexpected(given: string, command?: Command): UsageError {
  const advice =
    command === undefined || command.takesFlags
      ? 'every value follows a flag; several paths are separated by commas'
      : command.argument === undefined
        ? `${command.name} takes options only`
        : `${command.name} takes only ${command.argument}`;
  return new UsageError(`unexpected argument ${JSON.stringify(given)}: ${advice}`);
}
