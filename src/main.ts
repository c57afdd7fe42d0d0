import { writeFileSync } from 'node:fs';
import { openTerminal, subcommands, tools } from './app/subcommands.ts';
import { HELPER_PROCESS } from './kernel/iptables/exec-helper.ts';
import { endProcess } from './kernel/process.ts';
import { isSubcommand, runSubcommand } from './operate/command/run-subcommand.ts';

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
  if (isSubcommand(argv)) return await runSubcommand(argv, subcommands, openTerminal(), tools);
  // Only now: a subcommand is done in less time than it takes to read what the proxy is made of.
  const { program } = await import('./app/program.ts');
  return await program(argv);
}
