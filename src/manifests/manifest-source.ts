import { statSync, watch } from 'node:fs';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { FileRules } from '../kubernetes/objects/decoded.ts';
import { type Address, type Cidr, familyOf } from '../model/address.ts';
import type { SavedObject } from '../model/saved-object.ts';
import type { ServiceKey } from '../model/service.ts';
import type { ServiceSource, SourceEvent, SourceSink, Unusable } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import type { Found } from '../util/found.ts';
import type { Log } from '../util/log.ts';
import { stackOf } from '../util/text.ts';
import { inSlices, sleep } from '../util/wait.ts';
import { assignClusterIPs } from './cluster-ips.ts';
import {
  type FileObject,
  type FileState,
  knownPieces,
  lastGoodStates,
  NO_FILE,
  needsLastGood,
  nextFileState,
  type ObjectId,
  savedObjects,
  servedOf,
  unusableOf,
} from './file-state.ts';
import { type Content, isManifest, ManifestFiles, type PathNumber, type Scan } from './manifest-files.ts';
import { mismatches } from './mismatches.ts';
import { type KnownPieces, type Reading, readManifest } from './read-manifest.ts';

/** Finds what inotify does not report: files behind links, network file systems, directories that were replaced. */
const POLL_MS = 2_000;

/** Events of the file system come in groups. */
const GROUP_MS = 5;

/** A stream of events must not keep the passes running all the time. */
const PASS_EVERY_MS = 50;

/** Looking at very many files takes time; polling may use a tenth of it. */
const POLL_COST_FACTOR = 10;

export interface ManifestSourceOptions {
  /** Files and directories; the first ones take precedence. */
  readonly paths: readonly string[];
  /** Where Services without a cluster IP get one from; at most one of each family, the default first. */
  readonly clusterIpRanges?: readonly Cidr[];
  /** Endpoints may be loopback addresses of this machine. */
  readonly loopbackEndpoints?: boolean;
  /** What {@link ManifestSource.contents} gave in an earlier process. Read at most once, where a file is bad. */
  readonly saved?: Iterable<SavedObject>;
  /** {@link ManifestSource.contents} may be other ones. */
  readonly onChange?: () => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** The file and place that each object is taken from. */
type Origins = ReadonlyMap<ObjectId, FileObject>;

/**
 * Services and endpoints from manifest files in YAML or JSON. Events of the file system and a poll find changes.
 * A change takes effect once its file has come to rest; whatever is broken keeps its last good state.
 */
export class ManifestSource implements ServiceSource {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #paths: readonly string[];
  readonly #files: ManifestFiles;
  readonly #states = new Map<string, FileState>();
  readonly #delivered = new Map<ObjectId, SourceEvent>();
  /** What has been reported of objects in several files, and of endpoints that do not match a Service. */
  readonly #conflicts = new Map<ObjectId, string>();
  readonly #mismatches = new Map<ObjectId, string>();
  readonly #clusterIpRanges: readonly Cidr[];
  readonly #rules: FileRules;
  /** What Services without a cluster IP were given last, and which of them were reported as without one. */
  #assigned: ReadonlyMap<ServiceKey, readonly Address[]> = new Map();
  readonly #unassigned = new Map<ObjectId, string>();
  /** Until the first delivery. */
  #saved: Iterable<SavedObject> | undefined;
  #lastGood: ReadonlyMap<string, FileState> | undefined;
  readonly #onChange: () => void;
  #sink: SourceSink | undefined;
  #isSynced = false;
  readonly #stop = new AbortController();
  /** Aborted by an event of the file system, and on stop. */
  #woken = new AbortController();
  /** Files that may have changed since the last pass. */
  #touched = new Map<string, PathNumber>();
  /** By now any file may have changed. */
  #lookAtAllAtMs = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  #lastFault: string | undefined;

  constructor(options: ManifestSourceOptions) {
    this.#clock = options.clock;
    this.#log = options.log;
    // Without a slash at the end: the directory of a file must be one of these.
    this.#paths = options.paths.map((path) => join(path, '.'));
    this.#clusterIpRanges = options.clusterIpRanges ?? [];
    this.#rules = {
      clusterIpFamilies: this.#clusterIpRanges.map(({ network }) => familyOf(network)),
      loopbackEndpoints: options.loopbackEndpoints ?? false,
    };
    this.#saved = options.saved;
    this.#onChange = options.onChange ?? (() => {});
    const isServed = (path: string) => this.#servedAt(path).next().value !== undefined;
    this.#files = new ManifestFiles({ paths: this.#paths, isServed, clock: this.#clock, log: this.#log });
  }

  async start(sink: SourceSink): Promise<void> {
    await this.#files.check();
    this.#sink = sink;
    for (const [number, path] of this.#paths.entries()) this.#watch(path, number);
    const first = this.#pass();
    this.#running = first.then((restMs) => this.#poll(restMs));
    await first;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#woken.abort();
    await this.#running;
  }

  *unusable(): Generator<Unusable> {
    for (const [file, state] of this.#states) yield* unusableOf(file, state, this.#delivered);
    for (const { path, err } of this.#files.failing) yield { subject: path, usable: [], place: path, err };
  }

  /** `web.yaml:3`: where the object that is served begins. */
  placeOf(id: ObjectId): string | undefined {
    for (const { objects } of this.#states.values()) {
      const found = objects.find((each) => each.id === id);
      if (found !== undefined) return `${found.file}:${found.line}`;
    }
    return undefined;
  }

  serves({ subject, usable }: Unusable): boolean {
    if (this.#delivered.has(subject as ObjectId)) return true;
    const others = new Set(usable);
    return [...this.#servedAt(subject)].some((id) => !others.has(id));
  }

  /** All that is served, be its file in order or not. */
  contents(): Generator<SavedObject> {
    return savedObjects(this.#states.values());
  }

  /** Of the file, or of all files in the directory. */
  *#servedAt(path: string): Generator<ObjectId, undefined> {
    const state = this.#states.get(path);
    const states = state === undefined ? this.#states : [[path, state] as const];
    for (const [file, each] of states) if (file === path || dirname(file) === path) yield* servedOf(each);
  }

  #watch(path: string, number: PathNumber): void {
    try {
      const directory = statSync(path).isDirectory() ? path : undefined;
      const onEvent = (_: string, name: string | null) => {
        // Anything else may be what a manifest links to.
        if (directory !== undefined && name !== null && isManifest(name)) this.#touched.set(join(path, name), number);
        else this.#lookAtAllAtMs = Number.NEGATIVE_INFINITY;
        this.#woken.abort();
      };
      // A watch that ends, or cannot begin (fs.inotify.max_user_watches), only makes changes wait for the poll.
      watch(directory ?? dirname(path), { signal: this.#stop.signal }, onEvent).on('error', () => {});
    } catch {}
  }

  async #poll(firstRestMs: number): Promise<void> {
    let restMs = firstRestMs;
    let beganAtMs = this.#clock.now();
    for (;;) {
      await sleep(restMs, this.#clock, this.#woken.signal);
      if (this.#woken.signal.aborted) {
        const earliestMs = beganAtMs + PASS_EVERY_MS - this.#clock.now();
        await sleep(Math.max(GROUP_MS, earliestMs), this.#clock, this.#stop.signal);
      }
      if (this.#stop.signal.aborted) return;
      this.#woken = new AbortController();
      beganAtMs = this.#clock.now();
      restMs = await this.#pass();
    }
  }

  /** Looks for changes once and delivers them. Gives the wait before the next pass. Never rejects. */
  async #pass(): Promise<number> {
    let settlesInMs: number | undefined;
    try {
      const { rested, ...scan } = await this.#scan();
      ({ settlesInMs } = scan);
      const { hasChanges, isChanging } = await this.#inSlices(this.#takeAll(rested));
      // A file that has changed while it was read is not at rest yet.
      if (isChanging) settlesInMs = 1;
      // The first delivery is to be complete, so it waits for files that are just being written.
      const isDue = this.#isSynced ? hasChanges : settlesInMs === undefined;
      if (isDue && !this.#stop.signal.aborted) await this.#inSlices(this.#deliver());
      this.#lastFault = undefined;
    } catch (error) {
      // A defect of this program, because errors of the files are handled. Maybe the next pass gets on without it.
      const err = stackOf(error);
      if (err !== this.#lastFault) this.#log.error('Looking for changes in the manifests failed', { err });
      this.#lastFault = err;
    }
    return settlesInMs ?? Math.max(0, this.#lookAtAllAtMs - this.#clock.now());
  }

  /** Looks at the files that may have changed: at all of them now and then. */
  async #scan(): Promise<Scan> {
    const touched = this.#touched;
    this.#touched = new Map();
    if (this.#clock.now() < this.#lookAtAllAtMs) return await this.#files.scan(touched);
    // Before it looks: an event meanwhile may tell of a file that was looked at.
    this.#lookAtAllAtMs = this.#clock.now() + POLL_MS;
    const scan = await this.#files.scan();
    this.#lookAtAllAtMs += Math.max(0, POLL_COST_FACTOR * scan.lookCostMs - POLL_MS);
    return scan;
  }

  /** Runs work that yields now and then, because parsing is slow and there may be thousands of files. */
  async #inSlices<Result>(work: Generator<void, Result>): Promise<Result> {
    let step = work.next();
    await inSlices(this.#clock, () => {
      if (!step.done) step = work.next();
      return !step.done;
    });
    return step.value as Result;
  }

  *#takeAll(paths: readonly string[]): Generator<void, { readonly hasChanges: boolean; readonly isChanging: boolean }> {
    let hasChanges = false;
    let isChanging = false;
    for (const path of paths) {
      const content = this.#files.take(path);
      if (content === 'changing') isChanging = true;
      else if (content !== undefined) {
        hasChanges = true;
        yield* this.#take(path, content);
      }
      yield;
    }
    return { hasChanges, isChanging };
  }

  *#take(path: string, content: Content): Generator<void, void> {
    if (content.status === 'absent') {
      this.#log.v(2)?.info('A manifest file has gone', { file: path });
      this.#states.delete(path);
      return;
    }
    const known = this.#states.get(path);
    const reading =
      content.status === 'text'
        ? yield* this.#read(content.text, knownPieces(known ?? NO_FILE))
        : unusable(content.err);
    const before = known ?? (needsLastGood(reading) ? this.#lastGoodOf(path) : NO_FILE);
    const { state, reports } = nextFileState(path, before, reading);
    this.#states.set(path, state);
    this.#log.v(4)?.info('A manifest file has been read', { file: path, objects: state.objects.length });
    for (const { level, message, fields } of reports) this.#log[level](message, fields);
  }

  /** From before this process. */
  #lastGoodOf(path: string): FileState {
    if (this.#saved !== undefined) this.#lastGood = lastGoodStates(this.#saved, this.#rules);
    this.#saved = undefined;
    return this.#lastGood?.get(path) ?? NO_FILE;
  }

  *#read(text: string, known: KnownPieces): Generator<void, Reading> {
    try {
      return yield* readManifest(text, known, this.#rules);
    } catch (error) {
      // A defect; it must not cost the other files.
      return unusable({ found: stackOf(error) });
    }
  }

  /** An object that is in several files is taken from the first of them. */
  *#deliver(): Generator<void, void> {
    const found = new Map<ObjectId, FileObject>();
    const leftOut = new Set<ObjectId>();
    const others = new Map<ObjectId, string[]>();
    for (const path of this.#files.order) {
      for (const object of this.#states.get(path)?.objects ?? []) {
        const { id, event } = object;
        if (event === undefined) leftOut.add(id);
        else if (found.has(id)) others.set(id, [...(others.get(id) ?? []), path]);
        else found.set(id, object);
      }
      yield;
    }
    const assigned = this.#assign(found);
    yield;
    const events = this.#changesTo(found, assigned);
    if (events.length > 0) {
      this.#sink?.apply(events);
      this.#onChange();
    }
    if (!this.#isSynced) {
      this.#isSynced = true;
      this.#saved = undefined;
      this.#lastGood = undefined;
      this.#sink?.synced();
    }
    yield;
    // A reader of the change does not wait for these.
    this.#reportConflicts(others, found);
    yield;
    this.#reportMismatches(mismatches(found, leftOut), found);
  }

  /** What has changed since the last delivery. */
  #changesTo(found: Origins, assigned: ReadonlyMap<ObjectId, SourceEvent>): SourceEvent[] {
    const events: SourceEvent[] = [];
    let known = 0;
    const before = this.#delivered.size;
    for (const [id, { event: written }] of found) {
      const event = assigned.get(id) ?? written;
      if (event?.value === undefined) continue;
      const last = this.#delivered.get(id);
      if (last !== undefined) known += 1;
      if (event === last || isDeepStrictEqual(event, last)) continue;
      this.#delivered.set(id, event);
      events.push(event);
    }
    if (known === before) return events;
    const gone = [...this.#delivered].filter(([id]) => found.get(id)?.event?.value === undefined);
    for (const [id] of gone) this.#delivered.delete(id);
    // What has gone makes room for what has come.
    return [...gone.map(([, last]) => ({ ...last, value: undefined })), ...events];
  }

  /** Services that were written without a cluster IP, with one. */
  #assign(found: Origins): ReadonlyMap<ObjectId, SourceEvent> {
    const events = new Map<ObjectId, SourceEvent>();
    if (this.#clusterIpRanges.length === 0) return events;
    const services = [...found.values()].flatMap(({ event }) => (event?.kind === 'Service' ? (event.value ?? []) : []));
    const assigned = assignClusterIPs(services, this.#clusterIpRanges);
    const unassigned = new Map<ObjectId, string>();
    for (const [key, clusterIPs] of assigned) {
      const id: ObjectId = `Service "${key}"`;
      const { event, file } = found.get(id) ?? {};
      if (event?.kind !== 'Service' || event.value === undefined) continue;
      events.set(id, { ...event, value: { ...event.value, clusterIPs } });
      const before = this.#assigned.get(key);
      if (before?.some((old) => clusterIPs.some((each) => each !== old && familyOf(each) === familyOf(old)))) {
        const fields = { file, before: before.join(', '), now: clusterIPs.join(', ') };
        this.#log.warn(`${id} has another cluster IP, because other Services came or went`, fields);
      }
      const lacking = this.#rules.clusterIpFamilies.filter(
        (family) => event.value?.families?.includes(family) && !clusterIPs.some((each) => familyOf(each) === family),
      );
      if (lacking.length > 0) unassigned.set(id, lacking.join(' and '));
    }
    this.#assigned = assigned;
    for (const [id, families] of news(this.#unassigned, unassigned, found)) {
      const err = `no address of ${families} is free in --service-cluster-ip-range`;
      this.#log.warn(`${id} has no cluster IP`, { file: found.get(id)?.file, err });
    }
    return events;
  }

  #reportConflicts(others: ReadonlyMap<ObjectId, readonly string[]>, origins: Origins): void {
    const found = [...others].map(([id, paths]) => [id, paths.join(', ')] as const);
    for (const [id, paths] of news(this.#conflicts, new Map(found), origins)) {
      const message = `${id} is in several manifest files; the first one counts`;
      this.#log.warn(message, { file: origins.get(id)?.file, others: paths });
    }
  }

  #reportMismatches(found: ReadonlyMap<ObjectId, Found>, origins: Origins): void {
    for (const [id, err] of news(this.#mismatches, found, origins)) {
      const { file, document, line, field } = origins.get(id) ?? {};
      this.#log.warn(`${id} does not match a Service`, { file, document, line, field, err });
    }
  }
}

/** What was not `reported` yet, or was of another file. Afterwards it is, and what is not found any more is not. */
function news<T>(
  reported: Map<ObjectId, string>,
  found: ReadonlyMap<ObjectId, T>,
  origins: Origins,
): readonly (readonly [ObjectId, T])[] {
  for (const id of reported.keys()) if (!found.has(id)) reported.delete(id);
  return [...found].filter(([id, what]) => {
    const now = JSON.stringify([origins.get(id)?.file, what]);
    const isNews = reported.get(id) !== now;
    reported.set(id, now);
    return isNews;
  });
}

function unusable(err: Found): Reading {
  return { status: 'unusable', err };
}
