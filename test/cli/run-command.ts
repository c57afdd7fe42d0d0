import type { Command, OptionTable, Terminal, Tools } from '../../src/cli/command.ts';
import { parse } from '../../src/cli/parser.ts';

/** Runs a command with these arguments, as the program does. Rejects with the message for stderr. */
export async function runCommand<O extends OptionTable>(
  command: Command<O>,
  argv: readonly string[],
  terminal: Terminal,
  tools: Tools,
): Promise<number> {
  let run = (): Promise<number> => Promise.reject(new Error('the command was not called'));
  parse([command.name, ...argv], [command as unknown as Command], (called, given) => {
    run = () => called.run(given, terminal, tools);
  });
  return await run();
}
