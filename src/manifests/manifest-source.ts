import { statSync, watch } from 'node:fs';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { FileRules } from '../kubernetes/objects/decoded.ts';
import { type Address, type Cidr, familyOf } from '../model/address.ts';
import { type Finding, findingOf } from '../model/finding.ts';
import type { SavedObject } from '../model/saved-object.ts';
import type { ServiceKey } from '../model/service.ts';
import type { ServiceSource, SourceEvent, SourceSink, Unusable } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import type { Found } from '../util/found.ts';
import type { Log } from '../util/log.ts';
import { sameList } from '../util/same-list.ts';
import { stackOf } from '../util/text.ts';
import { inSlices, sleep } from '../util/wait.ts';
import { assignClusterIPs } from './cluster-ips.ts';
import {
  type FileState,
  findingsOf,
  knownPieces,
  lastGoodStates,
  NO_FILE,
  needsLastGood,
  nextFileState,
  type ObjectId,
  savedObjects,
  servedOf,
  serviceIdOf,
  serviceKeyOf,
  unusableOf,
} from './file-state.ts';
import { type Content, isManifest, ManifestFiles, type PathNumber, type Scan } from './manifest-files.ts';
import { Mismatches } from './mismatches.ts';
import { NamedObjects } from './named-objects.ts';
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
  readonly #objects = new NamedObjects();
  readonly #served = { has: (id: ObjectId) => this.#eventOf(id)?.value !== undefined };
  readonly #mismatches = new Mismatches(this.#objects);
  readonly #clusterIpRanges: readonly Cidr[];
  readonly #rules: FileRules;
  /** What Services without a cluster IP were given last. */
  #assigned: ReadonlyMap<ServiceKey, readonly Address[]> = new Map();
  /** Of Services without one, objects in several files, and endpoints that do not match a Service. */
  readonly #unassigned = new Reported();
  readonly #conflicts = new Reported();
  readonly #unmatched = new Reported();
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
    const isServed = (path: string) => this.#servesAnyAt(path);
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

  /** What is wrong with the files now. */
  *findings(): Generator<Finding> {
    for (const state of this.#states.values()) yield* findingsOf(state, this.#served);
    for (const { path, err } of this.#files.failing) {
      yield findingOf(this.#servesAnyAt(path) ? 'warn' : 'fail', 'Manifests cannot be read', { file: path, err });
    }
  }

  *unusable(): Generator<Unusable> {
    for (const [file, state] of this.#states) yield* unusableOf(file, state, this.#served);
    for (const { path, err } of this.#files.failing) yield { subject: path, usable: [], place: path, err };
  }

  /** `web.yaml:3`: where the object that is served begins. */
  placeOf(id: ObjectId): string | undefined {
    const { file, line } = this.#objects.get(id) ?? {};
    return file === undefined ? undefined : `${file}:${line}`;
  }

  serves({ subject, usable }: Unusable): boolean {
    if (this.#served.has(subject as ObjectId)) return true;
    const others = new Set(usable);
    return [...this.#servedAt(subject)].some((id) => !others.has(id));
  }

  /** All that is served, be its file in order or not. */
  contents(): Generator<SavedObject> {
    return savedObjects(this.#states.values());
  }

  /** As it is written. */
  #eventOf(id: ObjectId): SourceEvent | undefined {
    return this.#objects.get(id)?.event;
  }

  /** Of the file, or of all files in the directory. */
  *#servedAt(path: string): Generator<ObjectId, undefined> {
    const state = this.#states.get(path);
    const states = state === undefined ? this.#states : [[path, state] as const];
    for (const [file, each] of states) if (file === path || dirname(file) === path) yield* servedOf(each);
  }

  #servesAnyAt(path: string): boolean {
    return this.#servedAt(path).next().value !== undefined;
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
      this.#setState(path, undefined);
      return;
    }
    const known = this.#states.get(path);
    const reading =
      content.status === 'text'
        ? yield* this.#read(content.text, knownPieces(known ?? NO_FILE))
        : unusable(content.err);
    const before = known ?? (needsLastGood(reading) ? this.#lastGoodOf(path) : NO_FILE);
    const { state, reports } = nextFileState(path, before, reading);
    this.#setState(path, state);
    this.#log.v(4)?.info('A manifest file has been read', { file: path, objects: state.objects.length });
    for (const { level, message, fields } of reports) this.#log[level](message, fields);
  }

  /** From before this process. */
  #lastGoodOf(path: string): FileState {
    if (this.#saved !== undefined) this.#lastGood = lastGoodStates(this.#saved, this.#rules);
    this.#saved = undefined;
    return this.#lastGood?.get(path) ?? NO_FILE;
  }

  /** `undefined`: the file has gone. */
  #setState(path: string, state: FileState | undefined): void {
    this.#objects.replace(this.#states.get(path)?.objects ?? [], state?.objects ?? []);
    if (state === undefined) this.#states.delete(path);
    else this.#states.set(path, state);
  }

  *#read(text: string, known: KnownPieces): Generator<void, Reading> {
    try {
      return yield* readManifest(text, known, this.#rules);
    } catch (error) {
      // A defect; it must not cost the other files.
      return unusable({ found: stackOf(error) });
    }
  }

  *#deliver(): Generator<void, void> {
    const changes = this.#objects.takeChanges(() => this.#files.order);
    const lastAssigned = this.#assigned;
    const before = new Map<ObjectId, SourceEvent | undefined>();
    for (const id of this.#assign(changes.keys())) before.set(id, withClusterIPs(this.#eventOf(id), lastAssigned));
    for (const [id, object] of changes) before.set(id, withClusterIPs(object?.event, lastAssigned));
    const events = this.#changesSince(before);
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
    for (const id of changes.keys()) {
      this.#reportConflict(id);
      yield;
    }
    for (const [id, err] of this.#mismatches.update(before)) {
      this.#reportMismatch(id, err);
      yield;
    }
  }

  /** What to deliver of objects that had these states. */
  #changesSince(before: ReadonlyMap<ObjectId, SourceEvent | undefined>): SourceEvent[] {
    const [gone, there]: [SourceEvent[], SourceEvent[]] = [[], []];
    for (const [id, last] of before) {
      const event = withClusterIPs(this.#eventOf(id), this.#assigned);
      if (event?.value !== undefined) {
        if (event !== last && !isDeepStrictEqual(event, last)) there.push(event);
      } else if (last?.value !== undefined) gone.push({ ...last, value: undefined });
    }
    // What has gone makes room for what has come.
    return [...gone, ...there];
  }

  /**
   * Gives cluster IPs to Services that were written without one, as these follow from all of them. Returns the Services
   * that had others before.
   */
  #assign(changed: Iterable<ObjectId>): readonly ObjectId[] {
    const moved: ObjectId[] = [];
    const keys = [...changed].flatMap((id) => serviceKeyOf(id) ?? []);
    if (this.#clusterIpRanges.length === 0 || keys.length === 0) return moved;
    const services = [...this.#objects].flatMap(({ event }) => (event?.kind === 'Service' ? (event.value ?? []) : []));
    const assigned = assignClusterIPs(services, this.#clusterIpRanges);
    for (const key of keys) if (!assigned.has(key)) this.#unassigned.isNews(serviceIdOf(key), undefined);
    for (const [key, clusterIPs] of assigned) {
      const id = serviceIdOf(key);
      const { event, file } = this.#objects.get(id) ?? {};
      if (event?.kind !== 'Service' || event.value === undefined) continue;
      const before = this.#assigned.get(key);
      if (before !== undefined && !sameList(before, clusterIPs)) moved.push(id);
      if (before?.some((old) => clusterIPs.some((each) => each !== old && familyOf(each) === familyOf(old)))) {
        const fields = { file, before: before.join(', '), now: clusterIPs.join(', ') };
        this.#log.warn(`${id} has another cluster IP, because other Services came or went`, fields);
      }
      const lacking = this.#rules.clusterIpFamilies.filter(
        (family) => event.value?.families?.includes(family) && !clusterIPs.some((each) => familyOf(each) === family),
      );
      const families = lacking.length === 0 ? undefined : lacking.join(' and ');
      if (!this.#unassigned.isNews(id, families, file)) continue;
      const err = `no address of ${families} is free in --service-cluster-ip-range`;
      this.#log.warn(`${id} has no cluster IP`, { file, err });
    }
    this.#assigned = assigned;
    return moved;
  }

  #reportConflict(id: ObjectId): void {
    const { file } = this.#objects.get(id) ?? {};
    const others = this.#objects.othersOf(id).map((each) => each.file);
    const paths = others.length === 0 ? undefined : others.join(', ');
    if (!this.#conflicts.isNews(id, paths, file)) return;
    this.#log.warn(`${id} is in several manifest files; the first one counts`, { file, others: paths });
  }

  #reportMismatch(id: ObjectId, err: Found | undefined): void {
    const { file, document, line, field } = this.#objects.get(id) ?? {};
    if (!this.#unmatched.isNews(id, err, file)) return;
    this.#log.warn(`${id} does not match a Service`, { file, document, line, field, err });
  }
}

/** A Service that was written without cluster IPs, with those that it was given. */
function withClusterIPs(
  event: SourceEvent | undefined,
  assigned: ReadonlyMap<ServiceKey, readonly Address[]>,
): SourceEvent | undefined {
  if (event?.kind !== 'Service' || event.value === undefined) return event;
  const clusterIPs = assigned.get(event.key);
  return clusterIPs === undefined ? event : { ...event, value: { ...event.value, clusterIPs } };
}

/** What has been reported of objects. */
class Reported {
  readonly #told = new Map<ObjectId, string>();

  /** Whether this was not reported yet, or was of another file. Now it is. `undefined`: there is nothing to report. */
  isNews(id: ObjectId, what: string | Found | undefined, file?: string): boolean {
    if (what === undefined) {
      this.#told.delete(id);
      return false;
    }
    const now = JSON.stringify([file, what]);
    const isNews = this.#told.get(id) !== now;
    this.#told.set(id, now);
    return isNews;
  }
}

function unusable(err: Found): Reading {
  return { status: 'unusable', err };
}
