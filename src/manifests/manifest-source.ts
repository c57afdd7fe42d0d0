import type { ServiceSource, SourceSink } from '../model/source.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { Catalog } from './catalog.ts';
import { DirectoryWatches } from './directory-watches.ts';
import { type FileChange, FileSet } from './file-set.ts';
import { type FileReading, type FileState, nextFileState } from './file-state.ts';
import { type KnownDocuments, readManifest } from './read-manifest.ts';
import { write } from './report.ts';

export interface ManifestSourceOptions {
  /** Files and directories; the first ones take precedence. */
  readonly paths: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
}

/** An event of the file system is rarely alone. */
const DEBOUNCE_MS = 20;

/**
 * Finds what no event tells of: files behind links, network file systems, directories that cannot be watched. Looking at
 * a hundred files every half second would cost as much as all else that the program does at rest.
 */
const POLL_MS = 2_000;

/** With very many files a look at all of them is no longer free: polling may take a tenth of the time. */
const POLL_COST_FACTOR = 10;

/** How long parsing may hold the event loop. */
const TURN_MS = 10;

/**
 * Services and endpoints from manifest files in YAML or JSON. Changes on disk are found by events and by looking, are
 * taken over once they have come to rest, and keep the last good state of whatever is broken.
 */
export function createManifestSource(options: ManifestSourceOptions): ServiceSource {
  return new ManifestSource(options);
}

class ManifestSource implements ServiceSource {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #files: FileSet;
  readonly #watches: DirectoryWatches;
  readonly #catalog = new Catalog();
  readonly #states = new Map<string, FileState>();
  readonly #documents = new Map<string, KnownDocuments>();
  #sink: SourceSink | undefined;
  #isSynced = false;
  #isStopped = false;
  #pass: Promise<void> | undefined;
  #timer: { readonly handle: Timer; readonly dueAt: number } | undefined;
  #isWoken = false;
  #lookCostMs = 0;
  #turnBeganAt = 0;
  #lastFault: string | undefined;

  constructor({ paths, clock, log }: ManifestSourceOptions) {
    this.#clock = clock;
    this.#log = log;
    this.#files = new FileSet({ paths, clock, log });
    this.#watches = new DirectoryWatches({ onChange: () => this.#wake(), log });
  }

  async start(sink: SourceSink): Promise<void> {
    await this.#files.check();
    this.#sink = sink;
    this.#pass = this.#run();
    await this.#pass;
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.handle.cancel();
    await this.#pass;
    this.#watches.close();
  }

  /** Something may have changed. */
  #wake(): void {
    this.#isWoken = true;
    if (this.#pass === undefined) this.#schedule(this.#afterEventMs());
  }

  /** A stream of events must not keep the scan running all the time. */
  #afterEventMs(): number {
    return Math.max(DEBOUNCE_MS, this.#lookCostMs);
  }

  /** Unless a pass is due earlier anyway. */
  #schedule(delayMs: number): void {
    const dueAt = this.#clock.now() + delayMs;
    if (this.#isStopped || (this.#timer !== undefined && this.#timer.dueAt <= dueAt)) return;
    this.#timer?.handle.cancel();
    const run = () => {
      this.#timer = undefined;
      this.#pass = this.#run();
    };
    this.#timer = { handle: this.#clock.after(delayMs, run), dueAt };
  }

  /** One pass and the date of the next one. Never rejects. */
  async #run(): Promise<void> {
    this.#isWoken = false;
    try {
      const settlesInMs = await this.#scan();
      if (settlesInMs !== undefined) this.#schedule(settlesInMs);
      this.#lastFault = undefined;
    } catch (error) {
      // Not an error of the files, for those have been dealt with: a defect. Maybe the next pass gets on without it.
      const err = error instanceof Error ? (error.stack ?? error.message) : String(error);
      if (err !== this.#lastFault) this.#log.error('Looking for changes in the manifests failed', { err });
      this.#lastFault = err;
    }
    this.#pass = undefined;
    if (this.#isWoken) this.#schedule(this.#afterEventMs());
    this.#schedule(Math.max(POLL_MS, POLL_COST_FACTOR * this.#lookCostMs));
  }

  /** Resolves with the milliseconds until a changed file comes to rest, if there is one. */
  async #scan(): Promise<number | undefined> {
    this.#watches.set(await this.#files.directories());
    const { changes, settlesInMs, lookCostMs } = await this.#files.scan();
    this.#lookCostMs = lookCostMs;
    for (const change of changes) await this.#take(change);
    // The first delivery is to be complete, so it waits for files that are just being written.
    if (!this.#isStopped && (this.#isSynced || settlesInMs === undefined)) this.#deliver();
    return settlesInMs;
  }

  async #take({ rank, content }: FileChange): Promise<void> {
    const { path } = rank;
    if (content.status === 'absent') {
      this.#log.v(2)?.info('A manifest file has gone', { file: path });
      this.#states.delete(path);
      this.#documents.delete(path);
      this.#catalog.set(rank, undefined);
      return;
    }
    const reading = content.status === 'text' ? await this.#read(path, content) : unusable(content.err);
    const { state, reports } = nextFileState(path, this.#states.get(path), reading);
    this.#states.set(path, state);
    this.#catalog.set(rank, state.objects);
    this.#log.v(4)?.info('A manifest file has been read', { file: path, objects: state.objects.size });
    write(this.#log, reports);
  }

  async #read(path: string, content: { readonly text: string; readonly hash: string }): Promise<FileReading> {
    try {
      const known = this.#documents.get(path) ?? new Map();
      const result = await readManifest(content, { known, breathe: () => this.#breathe() });
      this.#documents.set(path, result.known);
      return result.reading;
    } catch (error) {
      // A defect; it must not cost the other files.
      return unusable(error instanceof Error ? (error.stack ?? error.message) : String(error));
    }
  }

  #deliver(): void {
    const { events, reports } = this.#catalog.takeChanges();
    write(this.#log, reports);
    if (events.length > 0) this.#sink?.apply(events);
    if (this.#isSynced) return;
    this.#isSynced = true;
    this.#sink?.synced();
  }

  /** Lets others have the event loop when this has had it for long enough. */
  async #breathe(): Promise<void> {
    if (this.#clock.now() - this.#turnBeganAt < TURN_MS) return;
    await new Promise<void>((resolve) => {
      this.#clock.after(0, resolve);
    });
    this.#turnBeganAt = this.#clock.now();
  }
}

function unusable(err: string): FileReading {
  return { status: 'unusable', err };
}
