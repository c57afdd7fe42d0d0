import { writeFileSync } from 'node:fs';
import { COMMANDS, openTerminal, tools } from './app/subcommands.ts';
import { HELPER_PROCESS } from './kernel/iptables/exec-helper.ts';
import { endProcess } from './kernel/process.ts';
import { runProgram } from './operate/command/parser.ts';

try {
  // Node names its main thread "MainThread", by which nobody would find this process.
  writeFileSync('/proc/self/comm', 'kube-userspace-proxy');
} catch {
  // Only the name that tools show is another.
}

void main(process.argv.slice(2)).then(async (code) => {
  // Not by letting the event loop run dry: worker threads and sockets of a start that failed would keep it going. What was
  // said has been written: a subcommand waits for its output, and the rest says less than a pipe holds.
  if (code !== undefined) await endProcess(code);
});

/** Resolves with the exit code, if it is known. */
async function main(argv: readonly string[]): Promise<number | undefined> {
  if (process.argv0 === HELPER_PROCESS) {
    await import('./kernel/iptables/helper.ts');
    return undefined;
  }
  return await runProgram(argv, {
    ...{ commands: COMMANDS, terminal: openTerminal(), tools },
    // Only now: a command is done in less time than it takes to read what the proxy is made of.
    run: async (flags) => await (await import('./app/program.ts')).program(flags),
  });
}
