import { writeSync } from 'node:fs';
import { PROGRAM } from '../config/version.ts';
import { endProcess } from '../kernel/process.ts';
import type { Subcommands } from '../operate/command/run-subcommand.ts';
import type { Terminal, Tools } from '../operate/command/subcommand.ts';
import { SUBCOMMANDS } from '../operate/command/subcommands.ts';
import { connectControl } from '../operate/control/connect.ts';
import { systemClock as clock } from '../util/system-clock.ts';

/** Each loads what it needs when it is run: none of them should wait for what the proxy, or another one, is made of. */
export const subcommands: Subcommands = {
  table: SUBCOMMANDS,
  loaders: {
    list: async () => (await import('../operate/command/list/list.ts')).list,
    explain: async () => (await import('../operate/command/explain/explain.ts')).explain,
    check: async () => (await import('./check.ts')).check,
    drain: async () => (await import('../operate/command/drain/drain.ts')).drain,
    undrain: async () => (await import('../operate/command/undrain.ts')).undrain,
    'log-level': async () => (await import('../operate/command/log-level.ts')).logLevel,
    version: async () => (await import('../operate/command/show-version.ts')).showVersion,
  },
};

const STDERR = 2;

/** This process's own. */
export function openTerminal(): Terminal {
  const { stdout, stderr } = process;
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    // Whoever reads may leave at any time, as `head` does; that is no failure.
    if (error.code === 'EPIPE') return void endProcess(0);
    writeSync(STDERR, `${PROGRAM}: cannot write all of it: ${error.message}\n`);
    void endProcess(1);
  });
  return {
    out: (text) => void stdout.write(text),
    err: (text) => void stderr.write(text),
    flush: async () => {
      await Promise.all([stdout, stderr].map(taken));
    },
    isTTY: stdout.isTTY === true,
    // A terminal that does not know its size, as on a serial line, says 0.
    size: () => ({ columns: stdout.columns || 80, rows: stdout.rows || 24 }),
  };
}

/** What was written before is written, or will never be. */
function taken(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    stream.write('', () => resolve());
  });
}

export const tools: Tools = {
  clock,
  connect: (path) => connectControl(path, clock),
  onInterrupt: (handler) => {
    process.on('SIGINT', handler);
    return () => process.off('SIGINT', handler);
  },
};
