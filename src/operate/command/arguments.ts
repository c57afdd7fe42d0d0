import { parseArgs } from 'node:util';
import { suggest } from '../../config/suggest.ts';
import { UsageError } from '../../config/usage-error.ts';
import type { Subcommand, SubcommandOption } from './subcommand.ts';

export interface SubcommandArguments {
  readonly positional: string | undefined;
  /** What was given to each option that takes a value; of several, the last. */
  readonly values: ReadonlyMap<string, string>;
  readonly switches: ReadonlySet<string>;
}

/**
 * What follows a subcommand's name, strictly: whatever the subcommand does not know is refused. Throws
 * {@link UsageError} with a sentence.
 */
export function parseArguments(subcommand: Subcommand, argv: readonly string[]): SubcommandArguments {
  const { options } = subcommand;
  // Not strict, as its own sentences are no help: what is wrong is found among the tokens.
  const { tokens } = parseArgs({
    args: [...argv],
    strict: false,
    tokens: true,
    options: Object.fromEntries(
      options.map(({ name, alias, value }) => [
        name,
        { type: value === undefined ? 'boolean' : 'string', ...(alias !== undefined && { short: alias }) } as const,
      ]),
    ),
  });
  const values = new Map<string, string>();
  const switches = new Set<string>();
  const positionals: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') positionals.push(token.value);
    if (token.kind !== 'option') continue;
    const option = options.find(({ name }) => name === token.name);
    if (option === undefined) throw unknownOption(token.rawName, options);
    if (option.value === undefined) switches.add(switchOf(option, token.value));
    else values.set(option.name, givenTo(option, token.value));
  }
  return { positional: onePositional(subcommand, positionals), values, switches };
}

function unknownOption(given: string, options: readonly SubcommandOption[]): UsageError {
  const meant = suggest(given.replace(/^-+/, ''), [...options.map(({ name }) => name), 'help']);
  const advice = meant === undefined ? 'see --help for those there are' : `did you mean --${meant}?`;
  return new UsageError(`unknown option ${JSON.stringify(given)}: ${advice}`);
}

function switchOf({ name }: SubcommandOption, given: string | undefined): string {
  if (given !== undefined) throw new UsageError(`--${name} ${JSON.stringify(given)}: it takes no value`);
  return name;
}

function givenTo({ name, value }: SubcommandOption, given: string | undefined): string {
  if (given === undefined) throw new UsageError(`a value is missing after --${name}`);
  const { choices } = value ?? {};
  if (choices !== undefined && !choices.includes(given)) {
    throw new UsageError(`--${name} ${JSON.stringify(given)}: must be one of ${choices.join(', ')}`);
  }
  return given;
}

function onePositional({ positional }: Subcommand, given: readonly string[]): string | undefined {
  const [first, second] = given;
  const surplus = positional === undefined ? first : second;
  if (surplus !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(surplus)}; see --help`);
  if (first === undefined && positional !== undefined && !positional.startsWith('[')) {
    throw new UsageError(`${positional} is missing; see --help`);
  }
  return first;
}
