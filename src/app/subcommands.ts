import { writeSync } from 'node:fs';
import { connectControl } from '../cli/client.ts';
import { type Command, command, type Terminal, type Tools } from '../cli/command.ts';
import { COMPLETION } from '../cli/completion.ts';
import { DRAIN, UNDRAIN } from '../cli/drain.ts';
import { EXPLAIN } from '../cli/explain.ts';
import { LIST } from '../cli/list/list.ts';
import { LOG_LEVEL } from '../cli/log-level.ts';
import { textOrJson } from '../cli/shared.ts';
import { SHOW_VERSION } from '../cli/show-version.ts';
import { STATUS } from '../cli/status.ts';
import { SUPPORT_DUMP } from '../cli/support-dump.ts';
import { TAIL } from '../cli/tail.ts';
import { WEIGHT } from '../cli/weight.ts';
import { PROGRAM } from '../config/version.ts';
import { endProcess } from '../kernel/process.ts';
import { systemClock as clock } from '../util/system-clock.ts';

export const CHECK = command({
  name: 'check',
  summary: 'check whether the proxy would run here with these flags, and what prevents it; changes nothing',
  takesFlags: true,
  options: textOrJson('text, or json for machines'),
  examples: [['check --kubeconfig FILE', 'before the proxy is started for the first time']],
  run: async (given, terminal) => {
    // Loaded only now: the other commands take less time than loading the code of the proxy.
    const { check } = await import('./check.ts');
    return await check(given, terminal);
  },
});

const PROBE = command({
  name: 'probe',
  summary: "for a Pod's startup probe: exit with 0 when the proxy that serves this node runs in this container",
  options: {},
  run: async (_given, terminal) => {
    const { isTrusted, nodeHolder } = await import('../kernel/node-claim.ts');
    const canAsk = await import('../sys/unix-socket.ts').then(
      () => true,
      () => false,
    );
    const holder = await nodeHolder();
    const obstacle = !canAsk
      ? 'system calls do not work here'
      : holder !== undefined && !isTrusted(holder)
        ? `user ${holder.uid} holds the name of the proxy`
        : undefined;
    if (obstacle !== undefined) {
      // The proxy serves all the same. To fail would have the kubelet end it, again and again.
      terminal.out(`${obstacle}, so nobody can tell who serves this node\n`);
      return 0;
    }
    const isHere = holder?.pid !== undefined;
    const who = holder === undefined ? 'nobody' : isHere ? `process ${holder.pid}` : 'a process of another container';
    terminal.out(`${who} serves this node\n`);
    return isHere ? 0 : 1;
  },
});

/** In the order in which `--help` shows them. */
export const COMMANDS: readonly Command[] = [
  STATUS,
  LIST,
  TAIL,
  EXPLAIN,
  CHECK,
  DRAIN,
  UNDRAIN,
  WEIGHT,
  LOG_LEVEL,
  SUPPORT_DUMP,
  PROBE,
  SHOW_VERSION,
  COMPLETION,
];

const STDERR = 2;

/** The terminal of this process. */
export function openTerminal(): Terminal {
  const { stdout, stderr } = process;
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    // The reader may leave at any time, as `head` does; that is no failure.
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

/** Resolves when earlier output is written, or never will be. */
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
