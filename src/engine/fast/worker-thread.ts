import { Worker } from 'node:worker_threads';
import type { Endpoint } from '../../model/endpoint.ts';
import { close, eventfd, write } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import { resetOnClose } from '../../sys/socket.ts';
import { must } from '../../sys/sys-error.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import {
  type Answer,
  type Command,
  type FrozenReport,
  type ListedReport,
  LONGEST_TURN_MS,
  type PortEvent,
  type PortId,
  type QuestionId,
  type Report,
  STATUS,
  STATUS_WORDS,
  type WorkerSetup,
} from './worker/protocol.ts';
import type { LiveRecord } from './worker/records.ts';
import type { WorkerEntry } from './worker-entry.ts';

/** A turn lasts milliseconds. Counted in looks and not in time, so that a stopped process accuses nobody. */
const LOOK_MS = 2 * LONGEST_TURN_MS;
const LOOKS_UNTIL_STUCK = 5;

const FIRST_RESTART_MS = 100;
const MAX_RESTART_MS = 5000;

/** A worker that has lived for so long starts again without delay after its next failure. */
const HEALTHY_MS = 60_000;

/** How long a worker may take to reset its connections at the end. */
const SHUTDOWN_MS = 2000;

/** A worker makes little garbage. With V8's default it would let 50 MiB of it pile up before looking. */
const HEAP = { maxYoungGenerationSizeMb: 6 };

const FAILED = 'a worker of the data plane has failed; try again in some seconds';

/** 1, as an eventfd wants it: 64 bits. */
const ONE = new Memory(8);
ONE.bytes.writeBigUInt64LE(1n);

export interface WorkerThreadSetup extends Omit<WorkerSetup, 'wakeFd'> {
  readonly entry: WorkerEntry;
  readonly clock: Clock;
  readonly log: Log;
  readonly onEvent: (event: PortEvent) => void;
  /** Its successor needs every port opened again. Commands until then are lost, and need not be repeated. */
  readonly onRestart: () => void;
}

/** One worker: its thread, and another thread whenever that dies or gets stuck. */
export class WorkerThread {
  readonly index: number;
  /** Service ports that it has, or is about to get. */
  ports = 0;
  readonly #setup: WorkerThreadSetup;
  readonly #wakeFd = must('eventfd', eventfd());
  readonly #owners: Uint8Array;
  readonly #status: Int32Array;
  /** Who waits for a port's answer, `opened` or `closed`. */
  readonly #asked = new Map<PortId, (err: string | undefined) => void>();
  /** Who waits for the answer to a question. */
  readonly #questions = new Map<QuestionId, (answer: Answer | undefined) => void>();
  #lastQuestion: QuestionId = 0;
  /** Who waits for the first thread to be at work. */
  #starting: { resolve(): void; reject(err: unknown): void } | undefined;
  #thread: Worker | undefined;
  #queue: Command[] = [];
  #isWaking = false;
  #isStopping = false;
  /** Its descriptors may be another process's: nothing is closed, and no thread takes the place of one that dies. */
  #isFrozen = false;
  #isReleased = false;
  #onGone = (): void => {};
  #failures = 0;
  #startedMs = 0;
  #restart: Timer | undefined;
  #look: Timer | undefined;

  constructor(setup: WorkerThreadSetup) {
    this.#setup = setup;
    this.index = setup.index;
    this.#owners = new Uint8Array(setup.owners);
    this.#status = new Int32Array(setup.status, setup.index * STATUS_WORDS * 4, STATUS_WORDS);
  }

  /**
   * Resolves when a thread is at work: the first, or one that has taken its place because it was stuck. Rejects when one
   * cannot be.
   */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#starting = { resolve, reject };
      this.#spawn();
    });
  }

  /** When this returns, the worker finds the command before it picks for another client, and those sent earlier too. */
  send(command: Command): void {
    this.enqueue(command);
    this.#post();
  }

  /** The same for a command that may wait until all that this turn has to say is said: it then goes in one message. */
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

  /**
   * Resolves when the worker has opened the port, or given its descriptor back; with a reason when it cannot. Also when
   * it dies before: another thread then opens what is to be open. While frozen there will be none, so that is a reason.
   */
  async ask(command: Extract<Command, { kind: 'open' | 'close' }>): Promise<string | undefined> {
    if (this.#thread === undefined) return this.#whyLost();
    const answered = new Promise<string | undefined>((resolve) => this.#asked.set(command.port, resolve));
    this.enqueue(command);
    return answered;
  }

  /** `undefined` also when there is no thread to ask, or it dies before it answers. */
  async nextPick(port: PortId, client: string): Promise<Endpoint | undefined> {
    const answer = await this.#inquire((question) => ({ kind: 'peek', question, port, client }));
    return answer?.kind === 'peeked' ? answer.endpoint : undefined;
  }

  /** A piece of what is open: `from` 0, or from the `next` of the piece before. `undefined`: as {@link nextPick}. */
  async list(port: PortId, from: number): Promise<ListedReport | undefined> {
    const answer = await this.#inquire((question) => ({ kind: 'list', question, port, from }));
    return answer?.kind === 'listed' ? answer : undefined;
  }

  /** Resolves with all that the worker has, once it is frozen. Rejects when there is no thread to ask, or it dies. */
  async freeze(): Promise<FrozenReport> {
    if (this.#thread === undefined) throw new Error(FAILED);
    this.#isFrozen = true;
    const answer = await this.#inquire((question) => ({ kind: 'freeze', question }));
    if (answer?.kind !== 'frozen') throw new Error(FAILED);
    return answer;
  }

  /** Resolves when it has adopted them, with a reason when it cannot. */
  async adopt(records: readonly LiveRecord[]): Promise<string | undefined> {
    const answer = await this.#inquire((question) => ({ kind: 'adopt', question, records }));
    return answer?.kind === 'adopted' ? answer.err : FAILED;
  }

  /** Throws an Error when it has died since it was told to freeze. */
  check(): void {
    if (this.#thread === undefined) throw new Error(FAILED);
  }

  /** What it had is reset if it has died since it was told to freeze, and another thread takes its place. */
  thaw(): void {
    this.#goOn({ kind: 'thaw' });
  }

  /** Resolves when it has taken a turn since it was told to thaw; also when it dies before. */
  async turned(): Promise<void> {
    await this.#inquire((question) => ({ kind: 'turn', question }));
  }

  /** Resets every connection: another thread takes the place of the one that has them. */
  reset(): void {
    this.#goOn({ kind: 'shutdown' });
  }

  /** Ends the thread. Another process has what it owned, so closing it here is not the end of anything. */
  async release(): Promise<void> {
    this.#isReleased = true;
    await this.#end({ kind: 'release' });
    close(this.#wakeFd);
  }

  /** Resets every connection and ends the thread. */
  async stop(): Promise<void> {
    await this.#end({ kind: 'shutdown' });
    close(this.#wakeFd);
  }

  #goOn(command: Command): void {
    if (!this.#isFrozen) return;
    this.#isFrozen = false;
    if (this.#thread === undefined) this.#replace();
    else this.send(command);
  }

  async #end(command: Command): Promise<void> {
    this.#isStopping = true;
    this.#isFrozen = false;
    this.#restart?.cancel();
    this.#look?.cancel();
    if (this.#thread === undefined) this.#reclaim();
    else {
      const gone = new Promise<void>((resolve) => {
        this.#onGone = resolve;
      });
      this.send(command);
      const timer = this.#setup.clock.after(SHUTDOWN_MS, () => this.#kill());
      await gone;
      timer.cancel();
    }
  }

  #spawn(): void {
    const { entry, clock, log, onEvent, onRestart, ...shared } = this.#setup;
    const workerData: WorkerSetup = { ...shared, wakeFd: this.#wakeFd };
    const thread = new Worker(entry, {
      workerData,
      name: `data-plane-${shared.index}`,
      resourceLimits: HEAP,
      eval: typeof entry === 'string',
    });
    this.#thread = thread;
    this.#startedMs = clock.now();
    thread.on('message', (reports: readonly Report[]) => {
      for (const report of reports) this.#onReport(report);
    });
    thread.on('error', (err) => {
      if (this.#starting !== undefined) this.#giveUp(err);
      else if (!this.#isStopping) {
        log.error('A worker of the data plane failed', { worker: shared.index, err: inFull(err) });
      }
    });
    thread.once('exit', () => this.#onExit());
    this.#watch(0);
  }

  /** Not to be tried again: the caller takes another engine. */
  #giveUp(err: unknown): void {
    this.#isStopping = true;
    this.#starting?.reject(err);
  }

  #onReport(report: Report): void {
    switch (report.kind) {
      case 'ready':
        this.#starting?.resolve();
        this.#starting = undefined;
        return;
      case 'opened':
        this.#answer(report.port, report.err);
        return;
      case 'closed':
        this.#answer(report.port, undefined);
        return;
      case 'frozen':
      case 'adopted':
      case 'peeked':
      case 'listed':
      case 'turned':
        this.#settle(report.question, report);
        return;
      default:
        this.#setup.onEvent(report);
    }
  }

  #answer(port: PortId, err: string | undefined): void {
    const answered = this.#asked.get(port);
    this.#asked.delete(port);
    if (answered !== undefined) answered(err);
    else if (err !== undefined) this.#setup.onEvent({ kind: 'listenerFailed', port, err });
  }

  async #inquire(commandFor: (question: QuestionId) => Command): Promise<Answer | undefined> {
    if (this.#thread === undefined) return undefined;
    const question = ++this.#lastQuestion;
    const answered = new Promise<Answer | undefined>((resolve) => this.#questions.set(question, resolve));
    this.enqueue(commandFor(question));
    return answered;
  }

  #settle(question: QuestionId, answer: Answer | undefined): void {
    this.#questions.get(question)?.(answer);
    this.#questions.delete(question);
  }

  #onExit(): void {
    this.#thread = undefined;
    this.#queue = [];
    this.#look?.cancel();
    if (!this.#isFrozen) this.#replace();
    for (const port of this.#asked.keys()) this.#answer(port, this.#whyLost());
    for (const question of this.#questions.keys()) this.#settle(question, undefined);
    this.#onGone();
  }

  #replace(): void {
    this.#reclaim();
    if (!this.#isStopping) this.#restartLater();
  }

  #whyLost(): string | undefined {
    return this.#isFrozen ? FAILED : undefined;
  }

  /** Descriptors belong to the process and outlive the thread: its connections are reset here, if they are its own. */
  #reclaim(): void {
    const owner = this.#setup.index + 1;
    for (let fd = this.#owners.indexOf(owner); fd >= 0; fd = this.#owners.indexOf(owner, fd + 1)) {
      this.#owners[fd] = 0;
      // Fails, and does no harm, for what is not a connection.
      if (!this.#isReleased) resetOnClose(fd);
      close(fd);
    }
    this.#status[STATUS.flows] = 0;
  }

  #restartLater(): void {
    const { clock, log, index, onRestart } = this.#setup;
    const wasHealthy = clock.now() - this.#startedMs >= HEALTHY_MS;
    this.#failures = wasHealthy ? 1 : this.#failures + 1;
    const delayMs = Math.min(FIRST_RESTART_MS * 2 ** (this.#failures - 1), MAX_RESTART_MS);
    log.error('The connections of a worker are lost; its Service ports go on in another', { worker: index, delayMs });
    this.#restart = clock.after(delayMs, () => {
      try {
        this.#spawn();
      } catch (err) {
        // Such as EAGAIN, where the kernel gives no thread.
        log.error('A worker of the data plane cannot be started', { worker: index, err: inFull(err) });
        return this.#restartLater();
      }
      onRestart();
    });
  }

  /** Looks now and then whether the worker's loop still turns. */
  #watch(stillFor: number, turns = this.#status[STATUS.turns]): void {
    this.#look?.cancel();
    this.#look = this.#setup.clock.after(LOOK_MS, () => {
      const turnsNow = this.#status[STATUS.turns];
      if (turnsNow !== turns) this.#watch(0);
      else if (stillFor + 1 < LOOKS_UNTIL_STUCK) this.#watch(stillFor + 1, turns);
      else this.#endStuck();
    });
  }

  #endStuck(): void {
    const { log, index } = this.#setup;
    log.error('A worker of the data plane is stuck and is ended', {
      worker: index,
      silentMs: LOOK_MS * LOOKS_UNTIL_STUCK,
    });
    this.#kill();
  }

  #kill(): void {
    this.#thread?.terminate().catch(() => {});
    this.#wake();
  }

  #post(): void {
    if (this.#queue.length === 0) return;
    this.#thread?.postMessage(this.#queue);
    this.#queue = [];
    Atomics.add(this.#status, STATUS.commands, 1);
  }

  /** Once per turn, for it costs more than all the rest: a worker that has a client meanwhile looks at the count. */
  #wake(): void {
    write(this.#wakeFd, ONE, 8);
  }
}

function inFull(err: unknown): string {
  return err instanceof Error ? (err.stack ?? err.message) : String(err);
}
