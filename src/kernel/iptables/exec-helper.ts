import type { Clock, Timer } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { DEFAULT_TIMEOUT_MS, type Exec, type ExecRequest, type ExecResult, inTurn } from './exec.ts';
import { type HelperCommand, helperCommand } from './helper-command.ts';
import { HelperProcess } from './helper-process.ts';

export interface ExecHelperOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** After which a program is killed; counted from its start, not from the request. */
  readonly timeoutMs?: number;
  /** What starts the helper; another one only in tests. */
  readonly command?: HelperCommand;
}

export interface ExecHelper {
  /**
   * One program at a time, in the order of the requests. When the helper ends, the request that it had fails, even
   * though the program may have done its work; later ones wait for the next helper.
   */
  readonly exec: Exec;
  /** Of the helper that runs now, or ran last. */
  readonly pid: number | undefined;
  /** It ends once the program that it runs has ended. No request may follow. */
  close(): void;
}

const FIRST_RESTART_MS = 100;
const MAX_RESTART_MS = 5000;

/** A helper that has lived for so long is replaced without much delay. */
const HEALTHY_MS = 60_000;

/**
 * Runs programs as children of a small process of its own. To start a program, Node forks, which stops its event loop
 * for as long as the kernel takes to copy the tables of all its memory: 11 ms at 300 MB, 34 ms at 1 GB, for every run
 * of iptables.
 *
 * The helper outlives us for as long as the program that it runs, and ends with it.
 */
export function startExecHelper(options: ExecHelperOptions): ExecHelper {
  return new RestartingHelper(options);
}

class RestartingHelper implements ExecHelper {
  readonly exec: Exec;
  readonly #options: Required<ExecHelperOptions>;
  #process: HelperProcess;
  #startedMs = 0;
  #failures = 0;
  #restart: Timer | undefined;
  /** The request that waits for the next helper: at most one, as they take turns. */
  #onStarted = (): void => {};
  #isClosed = false;

  constructor({ timeoutMs = DEFAULT_TIMEOUT_MS, command = helperCommand(), ...others }: ExecHelperOptions) {
    this.#options = { timeoutMs, command, ...others };
    this.exec = inTurn((request) => this.#run(request));
    this.#process = this.#start();
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  close(): void {
    this.#isClosed = true;
    this.#restart?.cancel();
    this.#process.close();
    this.#onStarted();
  }

  async #run(request: ExecRequest): Promise<ExecResult> {
    if (this.#restart !== undefined && !this.#isClosed) {
      await new Promise<void>((resolve) => {
        this.#onStarted = resolve;
      });
    }
    return this.#process.run(request, this.#options.timeoutMs);
  }

  #start(): HelperProcess {
    const { command, clock } = this.#options;
    this.#startedMs = clock.now();
    return new HelperProcess({ command, clock, onGone: (why) => this.#startLater(why) });
  }

  #startLater(err: string): void {
    if (this.#isClosed) return;
    const { clock, log } = this.#options;
    this.#failures = clock.now() - this.#startedMs >= HEALTHY_MS ? 1 : this.#failures + 1;
    const delayMs = Math.min(FIRST_RESTART_MS * 2 ** (this.#failures - 1), MAX_RESTART_MS);
    log.error('The helper process that starts iptables is gone; another one takes its place', { err, delayMs });
    this.#restart = clock.after(delayMs, () => {
      this.#restart = undefined;
      try {
        this.#process = this.#start();
      } catch (error) {
        // Such as ENOMEM: some errors are thrown, others emitted. Whoever waits is told that there is no helper.
        this.#startLater(String(error));
      }
      this.#onStarted();
    });
  }
}
