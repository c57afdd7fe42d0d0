import { monitorEventLoopDelay } from 'node:perf_hooks';
import { isatty } from 'node:tty';
import type { LoopDelayMs } from '../model/metrics.ts';
import { collectGarbage } from '../util/garbage.ts';
import type { Log } from '../util/log.ts';
import { readIfThere } from './files.ts';

/**
 * The flags of standard output and error, read before Node makes a pipe or a socket non-blocking. These flags belong to
 * the open file, so other programs of the same pipeline would lose output. `process.exit` restores them, `_exit` does
 * not.
 */
const outputs = [1, 2].map((fd) => ({ fd, flags: flagsOf(fd) }));

/**
 * Runs the `exit` handlers and ends this process.
 *
 * `process.exit` does not always end it: it joins V8's threads, and a compiling thread may be waiting for the main
 * thread to collect garbage (nodejs/node#54918, #64274). Such a proxy serves nobody, holds its ports, and is not
 * restarted. See ADR 15.
 */
export async function endProcess(code: number): Promise<never> {
  await import('../sys/descriptor.ts').then(
    ({ setStatusFlags }) => {
      for (const { fd, flags } of outputs) {
        if (flags !== undefined && flagsOf(fd) !== flags) setStatusFlags(fd, flags);
      }
    },
    () => {
      // koffi cannot be loaded; then `process.exit` restores them.
    },
  );
  return leaveProcess(code);
}

/** {@link endProcess}, but leaves the output non-blocking, because the successor process already uses it. */
export async function leaveProcess(code: number): Promise<never> {
  try {
    // Loaded here, because the node engine also runs where koffi's addon cannot be loaded.
    const { exitNow } = await import('../sys/descriptor.ts');
    process.emit('exit', code);
    exitNow(code);
  } catch {
    // The next best way follows.
  }
  process.exit(code);
}

/** Gives back what a burst of work has left in V8's heap and in malloc's. */
export async function giveBackMemory(): Promise<void> {
  collectGarbage();
  // Where koffi's addon cannot be loaded, malloc keeps it.
  await import('../sys/malloc.ts').then(({ trimMalloc }) => trimMalloc(0)).catch(() => {});
}

/** Throws a sentence for the user unless this process is root, as iptables itself asks for that. */
export function requireRoot(): void {
  const uid = process.geteuid?.() ?? 0;
  if (uid !== 0)
    throw new Error(`it runs as user ${uid}, and iptables needs root; start it as root, such as with sudo`);
}

/**
 * A person has started this process, and SIGHUP says that the terminal has closed. `nohup`, which wants the opposite,
 * leaves no terminal on these three; Node does not show whether SIGHUP was ignored.
 */
export function isOnTerminal(env: NodeJS.ProcessEnv): boolean {
  return env['NOTIFY_SOCKET'] === undefined && [0, 1, 2].some((fd) => isatty(fd));
}

/** `undefined` when the descriptor is not open. */
function flagsOf(fd: number): number | undefined {
  const octal = /^flags:\s*(\d+)$/m.exec(readIfThere(`/proc/self/fdinfo/${fd}`) ?? '')?.[1];
  return octal === undefined ? undefined : Number.parseInt(octal, 8);
}

/**
 * How many descriptors this process may have, from the text of `/proc/self/limits`. Node raises the soft limit to the
 * hard limit at start. `undefined` when there is no limit.
 *
 *     Limit                     Soft Limit           Hard Limit           Units
 *     Max open files            1048576              1048576              files
 */
export function descriptorLimit(procLimits: string): number | undefined {
  const [, soft] = /^Max open files +(\d+) /m.exec(procLimits) ?? [];
  return soft === undefined ? undefined : Number(soft);
}

/** {@link descriptorLimit} of this process; `undefined` also when /proc cannot be read. */
export function ownDescriptorLimit(): number | undefined {
  return descriptorLimit(readIfThere('/proc/self/limits') ?? '');
}

/** Warns when the limit on open files is lower than the limit on UDP flows. */
export function checkDescriptorLimit(udpMaxFlows: number, log: Log): void {
  const limit = ownDescriptorLimit();
  if (limit === undefined || limit > udpMaxFlows) return;
  log.warn(
    'The limit on open files is below --udp-max-flows, and connections need more of them; raise it (LimitNOFILE= of ' +
      'systemd, ulimit -n)',
    { limit, udpMaxFlows },
  );
}

/**
 * Measures how late this thread's event loop is, once per `resolutionMs`; each measurement wakes the process up. The
 * returned function summarizes the measurements since its last call; `undefined` when there were none.
 */
export function measureLoopDelay(resolutionMs: number): () => LoopDelayMs | undefined {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  histogram.enable();
  // The histogram holds the time between two measurements.
  const late = (ns: number): number => Math.max(0, ns / 1e6 - resolutionMs);
  return () => {
    if (histogram.count === 0) return undefined;
    const delay: LoopDelayMs = {
      min: late(histogram.min),
      mean: late(histogram.mean),
      stddev: histogram.stddev / 1e6,
      p50: late(histogram.percentile(50)),
      p90: late(histogram.percentile(90)),
      p99: late(histogram.percentile(99)),
      max: late(histogram.max),
    };
    histogram.reset();
    return delay;
  };
}
