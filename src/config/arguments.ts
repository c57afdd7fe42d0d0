import yargs from 'yargs';
import { ACCEPTED_FLAGS } from './accepted.ts';
import { FLAGS } from './flags.ts';
import type { AcceptedSetting, Flag } from './setting.ts';
import type { SettingName } from './settings.ts';
import { suggest } from './suggest.ts';
import { UsageError } from './usage-error.ts';
import { PROGRAM, VERSION } from './version.ts';

const SHOWN: readonly (readonly [name: string, flag: Flag<unknown>])[] = Object.entries(FLAGS);
const ACCEPTED: readonly (readonly [name: string, flag: AcceptedSetting<unknown>])[] = Object.entries(ACCEPTED_FLAGS);
const NAMES: ReadonlySet<string> = new Set([...SHOWN, ...ACCEPTED].map(([name]) => name));
const GENERAL = ['help', 'version'] as const;
const WIDTH = 100;

export interface Arguments {
  readonly help: boolean;
  readonly version: boolean;
  /** What help shows, when it was asked for. */
  readonly output: string;
  /** Every occurrence of each flag that was given, in order. */
  readonly flags: ReadonlyMap<SettingName, readonly string[]>;
  /** What is wrong with how the arguments are put together. */
  readonly problem: UsageError | undefined;
}

/** What the program does beside running the proxy. */
export interface SubcommandSummary {
  readonly name: string;
  readonly summary: string;
}

/** Only splits the arguments into flags and texts, the way pflag would; what the texts mean is not yargs' business. */
export function splitArguments(given: readonly string[], subcommands: readonly SubcommandSummary[]): Arguments {
  const argv = given.map(withDashes);
  let output = '';
  let failure: string | undefined;
  const parser = yargs()
    .scriptName(PROGRAM)
    .usage(
      'Usage: $0 [--kubeconfig FILE | --manifests PATH] [flags]\n\nBalances the TCP and UDP connections to Kubernetes Services over their endpoints, on this node.',
    )
    .locale('en')
    .updateStrings({
      'Not enough arguments following: %s': 'a value is missing after --%s',
      'Commands:': 'Subcommands, each with its own --help:',
      'Show help': 'show this help',
      'Show version number': 'show the version',
    })
    .wrap(WIDTH)
    // With this and the callback of parseSync, yargs neither prints nor exits.
    .fail((message) => {
      failure ??= message;
    })
    .parserConfiguration({
      'boolean-negation': false,
      'camel-case-expansion': false,
      'parse-numbers': false,
      'parse-positional-numbers': false,
      // `--udp-timeout -5s` is a wrong duration, not a flag "-5s".
      'nargs-eats-options': true,
      // In place of .strict(): keeps what was typed, so that a suggestion can be made, and keeps `--constructor` and
      // its like out of yargs' own objects, where they make it throw.
      'unknown-options-as-args': true,
    })
    .help()
    .alias('help', 'h')
    .version(VERSION)
    .epilogue(
      `Flags of kube-proxy that are checked and have no effect: ${ACCEPTED.map(([name]) => `--${name}`).join(', ')}.`,
    );
  for (const { name, summary } of subcommands) parser.command(name, summary);
  for (const [name, flag] of SHOWN) {
    parser.option(name, {
      group: flag.group,
      describe: flag.describe,
      defaultDescription: flag.fallbackText ?? flag.fallback[0],
      ...valuesOf(flag),
    });
  }
  for (const [name, flag] of ACCEPTED) parser.option(name, { hidden: true, ...valuesOf(flag) });
  parser.group([...GENERAL], 'General:');
  const { _, $0, ...parsed } = parser.parseSync([...argv], {}, (_error, _argv, text) => {
    output = text;
  });
  const flags = new Map(Object.entries(parsed));
  const unknown = [...unknownFlags(argv, flags), ..._.map(String)];
  return {
    help: flags.get('help') === true,
    version: flags.get('version') === true,
    output,
    flags: new Map([...flags].flatMap(([name, value]) => (isFlag(name) ? [[name, [value].flat().map(String)]] : []))),
    problem: failure === undefined ? problemOf(unknown[0], subcommands) : new UsageError(failure),
  };
}

/** yargs would take `--cleanup=maybe` for false if it knew that it is boolean. */
function valuesOf({ isSwitch }: { readonly isSwitch?: true }): { nargs?: 1 } {
  return isSwitch ? {} : { nargs: 1 };
}

/** `--log_dir` is `--log-dir`, as with upstream's WordSepNormalizeFunc. */
function withDashes(argument: string): string {
  const [, word = ''] = /^--([^=]+)/.exec(argument) ?? [];
  const dashed = word.replaceAll('_', '-');
  return NAMES.has(dashed) ? `--${dashed}${argument.slice(2 + word.length)}` : argument;
}

function isFlag(name: string): name is SettingName {
  return NAMES.has(name);
}

/** Flags that yargs has understood although they are none of ours, as they were typed. */
function unknownFlags(argv: readonly string[], flags: ReadonlyMap<string, unknown>): string[] {
  const known = new Set<string>([...NAMES, ...GENERAL, 'h']);
  return [...flags.keys()]
    .filter((key) => !known.has(key))
    .map((key) => {
      // "-bind-address" comes back as the letters b, i, n, d.
      const cluster = key.length === 1 ? argv.find((argument) => argument.startsWith(`-${key}`)) : undefined;
      return cluster ?? `--${key}`;
    });
}

function problemOf(unknown: string | undefined, subcommands: readonly SubcommandSummary[]): UsageError | undefined {
  if (unknown === undefined) return undefined;
  if (subcommands.some(({ name }) => name === unknown)) {
    return new UsageError(`${unknown} is a subcommand, which comes first: ${PROGRAM} ${unknown} --help`);
  }
  if (!unknown.startsWith('-')) {
    return new UsageError(
      `unexpected argument ${JSON.stringify(unknown)}: every value follows a flag; several paths are separated by commas`,
    );
  }
  const word = unknown.replace(/^-+/, '').replace(/=.*$/s, '');
  const meant = suggest(word, [...NAMES, ...GENERAL]);
  const advice = meant === undefined ? 'see --help for those there are' : `did you mean --${meant}?`;
  return new UsageError(`unknown flag ${JSON.stringify(unknown)}: ${advice}`);
}
