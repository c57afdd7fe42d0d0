import { ACCEPTED_FLAGS } from '../../src/config/accepted.ts';
import { FLAGS } from '../../src/config/flags.ts';
import type { Flag } from '../../src/config/setting.ts';
import type { Subcommand } from '../../src/operate/command/subcommand.ts';
import { CHECK } from '../../src/operate/command/subcommands.ts';

export interface OptionValue {
  /** `PATH` is one that a shell completes with names of files. */
  readonly placeholder: string;
  readonly choices?: readonly string[];
}

/** An option as a manual and the completions of a shell show it. */
export interface Option {
  /** With its dashes: `--dataplane`, `-v`. */
  readonly names: readonly string[];
  readonly describe: string;
  /** Absent: a switch. */
  readonly value?: OptionValue;
  /** What applies without it, in words. */
  readonly fallback?: string;
  readonly isList?: true;
}

export interface OptionGroup {
  /** "Listening" */
  readonly title: string;
  readonly options: readonly Option[];
}

/** All that can stand on a command line of the program. */
export interface Program {
  readonly groups: readonly OptionGroup[];
  /** Flags that have no effect, with their dashes. */
  readonly accepted: readonly string[];
  readonly commands: readonly Command[];
}

export interface Command extends Omit<Subcommand, 'options'> {
  readonly options: readonly Option[];
  /** Its own options, `--help`, and the flags of a run where it takes them, too. */
  readonly accepts: readonly Option[];
}

/** Flags whose value is a name of a file. */
const PATHS: readonly (keyof typeof FLAGS)[] = [
  'kubeconfig',
  'manifests',
  'control-socket',
  'config',
  'write-config-to',
];

const HELP: Option = { names: ['--help', '-h'], describe: 'show this in short' };

const GENERAL: OptionGroup = {
  title: 'General',
  options: [HELP, { names: ['--version'], describe: 'show the version' }],
};

/** Made of the tables that the program itself reads its arguments by. */
export function describeProgram(subcommands: readonly Subcommand[]): Program {
  const groups = Map.groupBy(Object.entries<Flag<unknown>>(FLAGS), ([, flag]) => flag.group);
  const described = [...groups].map(([title, flags]) => ({
    title: title.replace(/:$/, ''),
    options: flags.map(([name, flag]) => optionOf(name, flag)),
  }));
  const flags = described.flatMap(({ options }) => options);
  return {
    groups: [...described, GENERAL],
    accepted: Object.keys(ACCEPTED_FLAGS).map((name) => `--${name}`),
    commands: subcommands.map((subcommand) => commandOf(subcommand, flags)),
  };
}

function optionOf(name: string, { describe, isSwitch, choices, fallback, fallbackText }: Flag<unknown>): Option {
  const isPath = (PATHS as readonly string[]).includes(name);
  return {
    names: [name.length === 1 ? `-${name}` : `--${name}`],
    describe,
    ...(fallback.length === 0 && { isList: true }),
    ...(!isSwitch && {
      fallback: fallbackText ?? fallback[0] ?? 'none',
      value: { placeholder: isPath ? 'PATH' : 'VALUE', ...(choices && { choices }) },
    }),
  };
}

function commandOf({ options, ...command }: Subcommand, flags: readonly Option[]): Command {
  const own = options.map(({ name, alias, describe, value }) => ({
    names: [`--${name}`, ...(alias === undefined ? [] : [`-${alias}`])],
    describe,
    ...(value && { value }),
  }));
  return { ...command, options: own, accepts: [...own, ...(command.name === CHECK.name ? flags : []), HELP] };
}
