import type { SavedObject } from '../model/saved-object.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { finished, withDeadline } from '../util/wait.ts';
import { bodyOf, type Provenance } from './format.ts';
import type { StateFile } from './state-file.ts';

/** Changes come in groups: a rollout is one write. */
const REST_MS = 10_000;
/** Between two writes, and at most from a change to its write where changes never rest. Flash wears. */
const BETWEEN_MS = 60_000;
/** How much older than it is an unchanged state may seem after a loss of power. Costs one write of an inode. */
const CONFIRM_MS = 3_600_000;
/** A disk that hangs must not keep the process from its end, or from an upgrade. */
const PATIENCE_MS = 5_000;

export interface StateKeeperOptions {
  readonly file: Pick<StateFile, 'path' | 'read' | 'write' | 'confirm'>;
  readonly program: string;
  /** Of what is to be written now. */
  readonly provenance: () => Provenance;
  /** All of it; read in slices of time. A change meanwhile is followed by another write. */
  readonly contents: () => Iterable<SavedObject>;
  /** Whether no change may have been missed. */
  readonly isCurrent: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** Writes a state that has changed, when its changes have come to rest. */
export class StateKeeper {
  readonly #options: StateKeeperOptions;
  readonly #fault: LastingFault;
  /** Between {@link start} and {@link stop}. */
  #isRunning = false;
  /** Of the changes that are not written. */
  #firstAtMs: number | undefined;
  #lastAtMs = 0;
  #timer: Timer | undefined;
  #confirmTimer: Timer | undefined;
  #writtenAtMs = Number.NEGATIVE_INFINITY;
  /** What the file says, if it is this. */
  #written: string | undefined;
  #hasLooked = false;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: StateKeeperOptions) {
    this.#options = options;
    const { path } = options.file;
    this.#fault = new LastingFault({
      log: options.log,
      begun: 'The last state cannot be written to disk; a start without its source would serve an older one',
      over: `The last state is written to ${path} again`,
    });
  }

  /** The state is complete, and this process the one that writes it. */
  start(): void {
    this.#isRunning = true;
    this.#confirmLater();
    this.#arm();
  }

  changed(): void {
    const now = this.#options.clock.now();
    this.#firstAtMs ??= now;
    this.#lastAtMs = now;
    this.#arm();
  }

  /** Resolves when nothing is being written, and what has changed is on disk if that can be had soon. Never rejects. */
  async flush(): Promise<void> {
    if (!this.#isRunning) return;
    await this.#soon(this.#write());
  }

  /** Resolves when nothing is being written, or the disk hangs, and writes nothing more until {@link start}. */
  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#confirmTimer?.cancel();
    await this.#soon(this.#writing);
  }

  async #soon(work: Promise<void>): Promise<void> {
    const { clock, file } = this.#options;
    const late = `it takes longer than ${PATIENCE_MS / 1_000} s`;
    await withDeadline(work, { clock, ms: PATIENCE_MS, late }).catch((error: unknown) =>
      this.#fault.failed(messageOf(error), { file: file.path }),
    );
  }

  #arm(): void {
    if (!this.#isRunning || this.#timer !== undefined || this.#firstAtMs === undefined) return;
    this.#timer = this.#options.clock.after(this.#dueInMs(this.#firstAtMs), () => {
      this.#timer = undefined;
      if (this.#firstAtMs === undefined) return;
      // Changes that came meanwhile may have moved it.
      if (this.#dueInMs(this.#firstAtMs) > 0) this.#arm();
      else void this.#write();
    });
  }

  #dueInMs(firstAtMs: number): number {
    const rested = Math.min(this.#lastAtMs + REST_MS, firstAtMs + BETWEEN_MS);
    return Math.max(rested, this.#writtenAtMs + BETWEEN_MS) - this.#options.clock.now();
  }

  /** After the write that is under way, if there is one. Never rejects. */
  #write(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#writeOnce());
    return this.#writing;
  }

  async #writeOnce(): Promise<void> {
    const { file, program, provenance, contents, isCurrent, clock } = this.#options;
    const firstAtMs = this.#firstAtMs;
    this.#firstAtMs = undefined;
    // A write that fails is tried again as late.
    this.#writtenAtMs = clock.now();
    try {
      const of = provenance();
      if (!this.#hasLooked) await this.#look(of);
      const body = firstAtMs === undefined ? undefined : await finished(clock, bodyOf(contents()));
      // Objects change in more than what is kept of them.
      const written = body && summaryOf(of, body.digest);
      if (body !== undefined && written !== this.#written) {
        await file.write({ ...of, program, writtenAt: Math.round(clock.wallNow()) }, body);
        this.#written = written;
      } else if (this.#written !== undefined && isCurrent()) {
        await file.confirm(clock.wallNow());
      }
      this.#fault.succeeded();
    } catch (error) {
      this.#written = undefined;
      this.#firstAtMs ??= firstAtMs ?? clock.now();
      this.#fault.failed(messageOf(error), { file: file.path });
    }
    this.#arm();
  }

  /** What a process before this one has written need not be written again. */
  async #look(own: Provenance): Promise<void> {
    this.#hasLooked = true;
    const found = await this.#options.file.read(own, 0).catch(() => undefined);
    this.#written = found && summaryOf(found.head, found.digest);
  }

  #confirmLater(): void {
    this.#confirmTimer?.cancel();
    this.#confirmTimer = this.#options.clock.after(CONFIRM_MS, () => {
      this.#confirmLater();
      void this.#write();
    });
  }
}

function summaryOf({ node, source, cluster, bootId }: Provenance, digest: string): string {
  return JSON.stringify([node, source, cluster, bootId, digest]);
}
