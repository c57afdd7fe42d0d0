import { writeFileSync } from 'node:fs';
import { HELPER_PROCESS } from './kernel/iptables/exec-helper.ts';
import { endProcess } from './kernel/process.ts';

try {
  // Node names its main thread "MainThread", a name by which nobody would find this process.
  writeFileSync('/proc/self/comm', 'kube-userspace-proxy');
} catch {
  // Tools show another name, nothing more.
}

void main(process.argv.slice(2)).then(async (code) => {
  // Worker threads and sockets of a start that failed would keep the event loop going. All output has been written by
  // now: a subcommand waits for its output, and other output is shorter than what a pipe holds.
  if (code !== undefined) await endProcess(code);
});

/** Resolves with the exit code, if it is known. */
async function main(argv: readonly string[]): Promise<number | undefined> {
  if (process.argv0 === HELPER_PROCESS) {
    await import('./kernel/iptables/helper.ts');
    return undefined;
  }
  // Not for the helper: the parser and the commands take time and memory.
  const { COMMANDS, openTerminal, tools } = await import('./app/subcommands.ts');
  const { runProgram } = await import('./operate/command/parser.ts');
  return await runProgram(argv, {
    ...{ commands: COMMANDS, terminal: openTerminal(), tools },
    // Loaded only when needed: loading the proxy takes longer than most commands run.
    run: async (flags) => await (await import('./app/program.ts')).program(flags),
  });
}
