import { suggest } from '../../config/suggest.ts';
import { PROGRAM } from '../../config/version.ts';
import { messageOf, printable } from '../../util/text.ts';
import { subcommandHelp } from './help.ts';
import type { RunSubcommand, Subcommand, Terminal, Tools } from './subcommand.ts';

export interface Subcommands {
  readonly table: readonly Subcommand[];
  /** The code of each, by its name, loaded when it is run. */
  readonly loaders: Readonly<Record<string, () => Promise<RunSubcommand>>>;
}

/** Whether these arguments are for a subcommand; a run of the proxy has nothing but flags. */
export function isSubcommand([first]: readonly string[]): boolean {
  return first !== undefined && !first.startsWith('-');
}

/**
 * Resolves with the exit code when all has been said: 1 for whatever could not be done, with a sentence on stderr.
 */
export async function runSubcommand(
  argv: readonly string[],
  subcommands: Subcommands,
  terminal: Terminal,
  tools: Tools,
): Promise<number> {
  const code = await codeOf(argv, subcommands, terminal, tools);
  await terminal.flush();
  return code;
}

async function codeOf(
  [name = '', ...argv]: readonly string[],
  { table, loaders }: Subcommands,
  terminal: Terminal,
  tools: Tools,
): Promise<number> {
  const subcommand = table.find((each) => each.name === name);
  const load = loaders[name];
  if (subcommand === undefined || load === undefined) {
    return refuse(terminal, PROGRAM, unknown(name, table));
  }
  if (asksForHelp(argv)) {
    terminal.out(`${subcommandHelp(subcommand)}\n`);
    return 0;
  }
  try {
    const run = await load();
    return await run(argv, terminal, tools);
  } catch (error) {
    return refuse(terminal, `${PROGRAM} ${name}`, messageOf(error));
  }
}

function unknown(name: string, table: readonly Subcommand[]): string {
  const names = table.map((each) => each.name);
  const meant = suggest(name, names);
  const advice = meant === undefined ? `there are ${names.join(', ')}; flags begin with --` : `did you mean ${meant}?`;
  return `unknown subcommand ${JSON.stringify(name)}: ${advice}`;
}

function asksForHelp(argv: readonly string[]): boolean {
  return argv.includes('--help') || argv.includes('-h');
}

function refuse({ err }: Terminal, who: string, why: string): number {
  // It may hold what came over a socket.
  err(`${who}: ${printable(why)}\n`);
  return 1;
}
