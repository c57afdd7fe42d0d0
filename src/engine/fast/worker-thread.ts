import { getAsset, isSea } from 'node:sea';
import { Worker } from 'node:worker_threads';
import type { ConnectionLogSink } from '../../model/connection-log.ts';
import { close, signal } from '../../sys/descriptor.ts';
import { resetOnClose } from '../../sys/socket.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { stackOf } from '../../util/text.ts';
import { backoffMs } from '../../util/wait.ts';
import {
  type Answer,
  type Command,
  type FrozenWorker,
  LONGEST_TURN_MS,
  type NumberedEvent,
  type PortId,
  type QuestionId,
  type Questions,
  type Report,
  STATUS,
  STATUS_WORDS,
  type WorkerSetup,
} from './worker/protocol.ts';
import type { LiveRecord } from './worker/records.ts';
import { IDLE_CORE } from './worker/told-idle-cores.ts';

/** A turn lasts milliseconds. Looks are counted, not time: a process that was stopped must not blame its workers. */
const LOOK_MS = 2 * LONGEST_TURN_MS;
const LOOKS_UNTIL_STUCK = 5;
/**
 * The same for a thread that still starts, which takes long where much else wants the cores. Ended while native code is
 * loaded, it would take the process along.
 */
const LOOKS_UNTIL_STARTED = 30;

const RESTART = { firstMs: 100, maxMs: 5000 };

/** After a life of this length a worker's next failure counts as its first. */
const HEALTHY_MS = 60_000;

/** How long a worker may take to reset its connections at the end. */
const SHUTDOWN_MS = 2000;

/** A worker makes little garbage. With V8's default it would collect 50 MiB of it before looking. */
const HEAP = { maxYoungGenerationSizeMb: 6 };

const FAILED = 'a worker of the data plane has failed; try again in some seconds';

/** The module that runs in a worker, or the text of one. */
export type WorkerEntry = URL | string;

/** In the single executable it comes from this process's own file, even if another file has taken its place on disk. */
export function workerEntry(): WorkerEntry {
  return isSea() ? getAsset('worker.js', 'utf8') : new URL('./worker/main.ts', import.meta.url);
}

interface WorkerThreadSetup extends WorkerSetup {
  readonly entry: WorkerEntry;
  readonly clock: Clock;
  readonly log: Log;
  readonly onEvent: (event: NumberedEvent) => void;
  /** Others could carry some connections of this port. */
  readonly onBusy: (port: PortId) => void;
  /** Of the machine. */
  readonly idleCores: () => number;
  readonly connectionLog: ConnectionLogSink;
  /** The thread has ended: resolves when no other worker passes anything on to it. */
  readonly onGone: () => Promise<unknown>;
  /** What it held is closed. */
  readonly onReclaimed: () => void;
  /** A new thread needs every port opened again. Commands before this call are lost, and need not be repeated. */
  readonly onRestart: () => void;
}

/** A question without its number. */
type Asked<Kind extends keyof Questions> = {
  readonly [Each in Kind]: { readonly kind: Each } & Questions[Each]['asks'];
}[Kind];

/** One worker: its thread, and a new thread when that one dies or gets stuck. */
export class WorkerThread {
  readonly index: number;
  /** The number of its Service ports. */
  ports = 0;
  readonly #setup: WorkerThreadSetup;
  readonly #wakeFd: number;
  readonly #owners: Uint8Array;
  readonly #status: Int32Array;
  readonly #questions = new Map<QuestionId, (answer: Answer | undefined) => void>();
  #lastQuestion: QuestionId = 0;
  /** Until the first thread is ready. */
  #starting: PromiseWithResolvers<void> | undefined;
  #thread: Worker | undefined;
  #isReady = false;
  #queue: Command[] = [];
  #isWaking = false;
  #isStopping = false;
  /** Another process may own the descriptors: none is closed, and no thread replaces one that dies. */
  #isFrozen = false;
  #isReleased = false;
  #onEnded = (): void => {};
  #failures = 0;
  #startedMs = 0;
  #restart: Timer | undefined;
  /** Settles when a dead thread's descriptors are reclaimed. */
  #replacing: Promise<void> | undefined;
  #look: Timer | undefined;

  constructor(setup: WorkerThreadSetup) {
    this.#setup = setup;
    this.index = setup.index;
    this.#wakeFd = setup.wakeFds[setup.index] as number;
    this.#owners = new Uint8Array(setup.owners);
    this.#status = new Int32Array(setup.status, setup.index * STATUS_WORDS * 4, STATUS_WORDS);
  }

  /** Resolves when a thread is ready: the first, or its successor if it got stuck. Rejects when it cannot run. */
  async start(): Promise<void> {
    this.#starting = Promise.withResolvers();
    this.#spawn();
    await this.#starting.promise;
  }

  /** When this returns, the worker obeys this and all earlier commands before it picks for another client. */
  send(command: Command): void {
    this.enqueue(command);
    this.#post();
  }

  get isAlive(): boolean {
    return this.#thread !== undefined;
  }

  /** For a command that may wait for the end of this turn: all commands until then go in one message. */
  enqueue(command: Command): void {
    if (this.#thread === undefined) return;
    this.#queue.push(command);
    if (this.#isWaking) return;
    this.#isWaking = true;
    queueMicrotask(() => {
      this.#isWaking = false;
      this.#post();
      this.#wake();
    });
  }

  /** Holds for a thread that replaces this one, too. */
  wantEntries(areWanted: boolean): void {
    Atomics.store(this.#status, STATUS.entriesWanted, areWanted ? 1 : 0);
  }

  /** `undefined` when there is no thread, or it dies before it answers. */
  ask<Kind extends keyof Questions>(asked: Asked<Kind>): Promise<Questions[Kind]['gets'] | undefined> {
    const { promise, resolve } = Promise.withResolvers<Answer | undefined>();
    if (this.#thread === undefined) resolve(undefined);
    else {
      const question = ++this.#lastQuestion;
      this.#questions.set(question, resolve);
      this.enqueue({ ...asked, question } as Command);
    }
    return promise;
  }

  /**
   * Resolves when the worker has made the change, with a reason when it could not. If the worker dies before, there is
   * no reason, because a new thread opens the ports again; except while frozen, when there is no new thread.
   */
  async change(asked: Asked<'open' | 'close' | 'adopt' | 'carry' | 'uncarry'>): Promise<string | undefined> {
    const outcome = await this.ask(asked);
    if (outcome !== undefined) return outcome.err;
    return this.#isFrozen ? FAILED : undefined;
  }

  /** Resolves when the worker passes nothing on to others. Next is {@link freeze}. Rejects as that does. */
  async hold(): Promise<void> {
    if (this.#thread === undefined) throw new Error(FAILED);
    this.#isFrozen = true;
    if ((await this.ask({ kind: 'hold' })) === undefined) throw new Error(FAILED);
  }

  /** Resolves once it is frozen. Next is {@link given}. Rejects when there is no thread, or it dies. */
  async freeze(): Promise<FrozenWorker> {
    if (this.#thread === undefined) throw new Error(FAILED);
    this.#isFrozen = true;
    const frozen = await this.ask({ kind: 'freeze' });
    if (frozen === undefined) throw new Error(FAILED);
    return frozen;
  }

  /** All that a frozen worker has, in pieces. Throws when it dies. */
  async *given(): AsyncGenerator<readonly LiveRecord[], undefined> {
    for (;;) {
      const piece = await this.ask({ kind: 'give' });
      if (piece === undefined) throw new Error(FAILED);
      if (piece.records.length === 0) return;
      yield piece.records;
    }
  }

  /** Throws an Error when the thread has died since it was frozen. */
  check(): void {
    if (this.#thread === undefined) throw new Error(FAILED);
  }

  /**
   * Ends the freeze: `thaw` continues, `shutdown` resets every connection and starts a new thread. The same happens if
   * the thread has died since it was frozen.
   */
  unfreeze(kind: 'thaw' | 'shutdown'): void {
    if (!this.#isFrozen) return;
    this.#isFrozen = false;
    if (this.#thread === undefined) void this.#replaceOnce();
    else this.send({ kind });
  }

  /** Ends the thread. `shutdown` resets every connection, `release` none: another process has the sockets. */
  async end(kind: 'shutdown' | 'release'): Promise<void> {
    this.#isReleased = kind === 'release';
    this.#isStopping = true;
    this.#isFrozen = false;
    this.#restart?.cancel();
    this.#look?.cancel();
    if (this.#thread === undefined) await this.#replaceOnce();
    else {
      const gone = Promise.withResolvers<void>();
      this.#onEnded = gone.resolve;
      this.send({ kind });
      const timer = this.#setup.clock.after(SHUTDOWN_MS, () => this.#kill());
      await gone.promise;
      timer.cancel();
    }
  }

  #spawn(): void {
    const { entry, clock, log, onEvent, onBusy, idleCores, ...others } = this.#setup;
    const { onGone, onReclaimed, connectionLog, onRestart, ...workerData } = others;
    const thread = new Worker(entry, {
      workerData,
      name: `data-plane-${this.index}`,
      resourceLimits: HEAP,
      eval: typeof entry === 'string',
    });
    this.#thread = thread;
    this.#isReady = false;
    this.#replacing = undefined;
    this.#startedMs = clock.now();
    thread.on('message', (reports: readonly Report[]) => {
      for (const report of reports) this.#onReport(report);
    });
    thread.on('error', (err) => {
      if (this.#starting !== undefined) {
        // The first thread cannot run: the caller takes another engine.
        this.#isStopping = true;
        this.#starting.reject(err);
      } else if (!this.#isStopping) {
        log.error('A worker of the data plane failed', { worker: this.index, err: stackOf(err) });
      }
    });
    thread.once('exit', () => void this.#onExit());
    this.#watch(0);
  }

  #onReport(report: Report): void {
    if (report.kind === 'ready') {
      this.#isReady = true;
      if (!this.#isStopping) this.#watch(0);
      this.#starting?.resolve();
      this.#starting = undefined;
    } else if (report.kind === 'answer') {
      this.#settle(report.question, report.answer);
    } else if (report.kind === 'entries') {
      this.#takeEntries(report);
    } else if (report.kind === 'busy') {
      this.#setup.onBusy(report.port);
    } else if (report.kind === 'ask-idle-cores') {
      this.#status[STATUS.idleCores] = Math.round(this.#setup.idleCores() * IDLE_CORE);
    } else if (report.kind === 'fault') {
      const { log, index } = this.#setup;
      log.error('A connection has ended by a fault of the proxy', { worker: index, err: report.err });
    } else {
      this.#setup.onEvent(report);
    }
  }

  #takeEntries({ entries, lost }: Extract<Report, { readonly kind: 'entries' }>): void {
    Atomics.add(this.#status, STATUS.entriesTaken, entries.length);
    if (entries.length > 0) this.#setup.connectionLog.ended(entries);
    if (lost > 0) this.#setup.connectionLog.lost(lost);
  }

  #settle(question: QuestionId, answer: Answer | undefined): void {
    this.#questions.get(question)?.(answer);
    this.#questions.delete(question);
  }

  async #onExit(): Promise<void> {
    this.#thread = undefined;
    this.#queue = [];
    this.#look?.cancel();
    const questions = [...this.#questions.keys()];
    if (!this.#isFrozen) await this.#replaceOnce();
    for (const question of questions) this.#settle(question, undefined);
    this.#onEnded();
  }

  #replaceOnce(): Promise<void> {
    this.#replacing ??= this.#replace();
    return this.#replacing;
  }

  async #replace(): Promise<void> {
    await this.#setup.onGone();
    this.#reclaim();
    if (!this.#isStopping) this.#restartLater();
  }

  /** Descriptors belong to the process and outlive the thread. Its own connections are reset here. */
  #reclaim(): void {
    const owner = this.#setup.index + 1;
    for (let fd = this.#owners.indexOf(owner); fd >= 0; fd = this.#owners.indexOf(owner, fd + 1)) {
      this.#owners[fd] = 0;
      // Fails without harm for what is not a connection.
      if (!this.#isReleased) resetOnClose(fd);
      close(fd);
    }
    this.#setup.onReclaimed();
  }

  #restartLater(): void {
    const { clock, log, index, onRestart } = this.#setup;
    const wasHealthy = clock.now() - this.#startedMs >= HEALTHY_MS;
    this.#failures = wasHealthy ? 1 : this.#failures + 1;
    const delayMs = backoffMs(this.#failures, RESTART);
    log.error('The connections of a worker are lost; its Service ports go on in another', { worker: index, delayMs });
    this.#restart = clock.after(delayMs, () => {
      try {
        this.#spawn();
      } catch (err) {
        // Such as EAGAIN, when the kernel gives no thread.
        log.error('A worker of the data plane cannot be started', { worker: index, err: stackOf(err) });
        return this.#restartLater();
      }
      onRestart();
    });
  }

  /** Ends a worker whose loop does not turn any more. */
  #watch(stillFor: number, turns = this.#status[STATUS.turns]): void {
    const { clock, log, index } = this.#setup;
    this.#look?.cancel();
    this.#look = clock.after(LOOK_MS, () => {
      const turnsNow = this.#status[STATUS.turns];
      if (turnsNow !== turns) return this.#watch(0);
      const looks = this.#isReady ? LOOKS_UNTIL_STUCK : LOOKS_UNTIL_STARTED;
      if (stillFor + 1 < looks) return this.#watch(stillFor + 1, turns);
      const silentMs = LOOK_MS * looks;
      log.error('A worker of the data plane is stuck and is ended', { worker: index, silentMs });
      this.#kill();
    });
  }

  #kill(): void {
    this.#thread?.terminate().catch(() => {});
    this.#wake();
  }

  #post(): void {
    if (this.#queue.length === 0) return;
    const channels = this.#queue.flatMap((command) => (command.kind === 'link' ? command.channel : []));
    this.#thread?.postMessage(this.#queue, channels);
    this.#queue = [];
    Atomics.add(this.#status, STATUS.commands, 1);
  }

  /** Once per turn, because it costs more than the rest: a worker that serves a client meanwhile reads the count. */
  #wake(): void {
    signal(this.#wakeFd);
  }
}
