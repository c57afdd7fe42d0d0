import { type ChildProcess, spawn } from 'node:child_process';
import { isSea } from 'node:sea';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { backoffMs } from '../../util/wait.ts';
import { DEFAULT_TIMEOUT_MS, type Exec, type ExecRequest, type ExecResult, inTurn } from './exec.ts';

/** The single executable becomes the helper when this is its argument 0. No file has such a name. */
export const HELPER_PROCESS = 'kube-userspace-proxy: iptables helper';

export interface ExecHelperOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** The program is killed this long after its start. */
  readonly timeoutMs?: number;
  /** The helper's module in a run from the sources; another one only in tests. */
  readonly entry?: URL;
}

/** The helper enforces the program's deadline. When it has not answered this much later, the helper itself hangs. */
const GRACE_MS = 5_000;
const RESTART = { firstMs: 100, maxMs: 5_000 };
/** The end of a helper that lived this long does not count as one more failure in a row. */
const HEALTHY_MS = 60_000;

/**
 * Runs programs as children of a small process of its own. To start a program, Node forks, which blocks its event loop
 * while the kernel copies the page tables of all its memory: 6 ms at 180 MB, 41 ms at 1 GB, for each run of iptables
 * (docs/adr/0011).
 *
 * The helper ends with this process, but first it finishes the program that it runs.
 */
export class ExecHelper {
  /**
   * One program at a time, in the order of the requests. When the helper ends, the current request fails, although the
   * program may have done its work; later requests wait for the next helper.
   */
  readonly exec: Exec = inTurn((request) => this.#run(request));
  readonly #options: Required<ExecHelperOptions>;
  /** The helper that runs now, or ran last. */
  #child: ChildProcess | undefined;
  #startedMs = 0;
  #failures = 0;
  /** Why the last helper ended; `undefined` while one runs. */
  #gone: string | undefined;
  #restarted: Promise<void> | undefined;
  #settle: ((result: ExecResult) => void) | undefined;
  #isClosed = false;

  constructor(options: ExecHelperOptions) {
    const entry = new URL('./helper.ts', import.meta.url);
    this.#options = { timeoutMs: DEFAULT_TIMEOUT_MS, entry, ...options };
    this.#start();
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** The helper ends as soon as the program that it runs has ended. The current request fails. */
  close(): void {
    this.#isClosed = true;
    this.#child?.disconnect?.();
  }

  async #run(request: ExecRequest): Promise<ExecResult> {
    await this.#restarted;
    return await new Promise((resolve) => {
      const { clock, timeoutMs } = this.#options;
      const watchdog = clock.after(timeoutMs + GRACE_MS, () => {
        this.#child?.kill('SIGKILL');
        this.#ended('it did not answer in time');
      });
      this.#settle = (result) => {
        watchdog.cancel();
        this.#settle = undefined;
        resolve(result);
      };
      if (this.#gone !== undefined) return this.#fail();
      // When this fails, the helper is about to end. `send` is missing when it could not be started.
      this.#child?.send?.({ ...request, timeoutMs }, () => {});
    });
  }

  #start(): void {
    this.#gone = undefined;
    this.#startedMs = this.#options.clock.now();
    try {
      const child = startHelper(this.#options.entry);
      this.#child = child;
      const ended = (why: string) => {
        if (this.#child === child) this.#ended(why);
      };
      child.on('message', (result) => {
        if (this.#child === child) this.#settle?.(result as ExecResult);
      });
      child.on('error', (error) => ended(error.message));
      child.on('exit', (code, signal) => ended(signal === null ? `it ended with ${code}` : `it ended by ${signal}`));
    } catch (error) {
      // Some errors, such as ENOMEM, are thrown rather than emitted.
      this.#ended(messageOf(error));
    }
  }

  #ended(why: string): void {
    if (this.#gone !== undefined) return;
    this.#gone = why;
    this.#fail();
    if (this.#isClosed) return;
    const { clock, log } = this.#options;
    this.#failures = clock.now() - this.#startedMs >= HEALTHY_MS ? 1 : this.#failures + 1;
    const delayMs = backoffMs(this.#failures, RESTART);
    log.error('The helper process that starts iptables has ended; starting another one', { err: why, delayMs });
    this.#restarted = new Promise((resolve) => {
      clock.after(delayMs, () => {
        this.#restarted = undefined;
        this.#start();
        resolve();
      });
    });
  }

  #fail(): void {
    this.#settle?.({ outcome: 'failed', err: `the helper process that starts programs has ended: ${this.#gone}` });
  }
}

function startHelper(entry: URL): ChildProcess {
  // Not the path of the executable: another version may have taken its place on disk.
  const [file, args, argv0] = isSea()
    ? ['/proc/self/exe', [], HELPER_PROCESS]
    : [process.execPath, ['--max-semi-space-size=1', '--expose-gc', fileURLToPath(entry)], process.argv0];
  // A session of its own: a ^C at our terminal must not reach it during a transaction.
  return spawn(file, args, {
    argv0,
    detached: true,
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
}
