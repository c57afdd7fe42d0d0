import { endProcess } from '../kernel/process.ts';

/** What a user has started: the proxy, or one of the commands. */
export async function start(argv: readonly string[]): Promise<void> {
  const { COMMANDS, openTerminal, tools } = await import('./subcommands.ts');
  const { runProgram } = await import('../cli/parser.ts');
  const code = await runProgram(argv, {
    commands: COMMANDS,
    terminal: openTerminal(),
    tools,
    // Loaded only when needed: loading the proxy takes longer than most commands run.
    run: async (flags) => await (await import('./program.ts')).program(flags),
  });
  // Worker threads and sockets of a start that failed would keep the event loop going. All output has been written by
  // now: a subcommand waits for its output, and other output is shorter than what a pipe holds.
  if (code !== undefined) await endProcess(code);
}
