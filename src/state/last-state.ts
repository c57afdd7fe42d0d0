import { decodeNode, encodeNode, type NodeStatus } from '../kubernetes/node.ts';
import { encodeObject } from '../kubernetes/objects/encode.ts';
import { decodeSaved, isPresent, type KubernetesObject } from '../kubernetes/objects/kubernetes-object.ts';
import { decodeServiceCidr, encodeServiceCidr } from '../kubernetes/service-cidrs.ts';
import type { Address, Cidr } from '../model/address.ts';
import type { PodAddresses } from '../model/pod-addresses.ts';
import type { SavedObject } from '../model/saved-object.ts';
import { type ApiStatus, idOf, type ServiceSource, type SourceEvent, type SourceSink } from '../model/source.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log, LogFields } from '../util/log.ts';
import { rfc3339 } from '../util/timestamp.ts';
import { isObject } from '../util/untrusted.ts';
import { eachInSlices, withDeadline } from '../util/wait.ts';
import { Followed } from './followed.ts';
import { type Head, UnusableState } from './format.ts';
import { OwnPods, type OwnPodsOptions } from './own-pods.ts';
import { reportUnusable, type SavedState, type StateFile } from './state-file.ts';

/** A disk that hangs must not keep a successor from its start. */
const PATIENCE_MS = 5_000;

export interface LastStateOptions {
  /** The API server's. */
  readonly source: Pick<ServiceSource, 'start' | 'stop'> & { status(): Pick<ApiStatus, 'lastContactAt'> };
  readonly file: Pick<StateFile, 'path' | 'read'>;
  readonly node: string;
  /** The UID of the Service `default/kubernetes`, as far as the API server has said it. */
  readonly cluster: () => string | undefined;
  /** `--state-wait`. */
  readonly waitMs: number;
  /** `--state-max-age`; 0: any age. */
  readonly maxAgeMs: number;
  /** What is known, all of it from the API server, may not be what is on disk. */
  readonly onChange: () => void;
  /** These objects of the state on disk are served from now on. */
  readonly onRecall: (objects: readonly KubernetesObject[]) => void;
  /** The kernel's, of this start of the machine. */
  readonly bootId: string;
  readonly localAddresses: OwnPodsOptions['localAddresses'];
  /** Missing without `--cri-endpoint`. */
  readonly runtime: PodAddresses | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * What an API server has said last, with its answer or without: stands between the source and everything behind it. It
 * passes on all that the source says. When the first lists do not come in time, it delivers the state on disk as if the
 * source had said it. When they come after all, what they do not have is removed, so that all the rest stays as it is.
 * Whoever says it, what has not changed since an earlier boot is doubtful.
 */
export class LastState {
  readonly #options: LastStateOptions;
  /** All that was said and stands. */
  readonly #known = new Map<string, KubernetesObject>();
  readonly node = new Followed<NodeStatus>(() => this.#changed());
  /** The blocks that cluster IPs come from. */
  readonly serviceCidrs = new Followed<readonly Cidr[]>(() => this.#changed());
  /** What the API server has said before its lists were complete; afterwards there is no need to tell. */
  #told: Set<string> | undefined = new Set();
  /** See {@link servedOf}. */
  #servedOf: number | undefined;
  readonly #ownPods: OwnPods;
  /** Of the state on disk when this process began, once it is read. */
  #before: Head | undefined;
  /** Resolves when it is known what is doubtful. */
  #recalled: Promise<void> = Promise.resolve();
  #wait: Timer | undefined;
  #sink: SourceSink | undefined;

  constructor(options: LastStateOptions) {
    this.#options = options;
    this.#ownPods = new OwnPods({ ...options, onChange: (objects) => this.#moved(objects) });
  }

  async start(sink: SourceSink): Promise<void> {
    this.#sink = sink;
    await this.#options.source.start({
      apply: (events) => this.#apply(events),
      synced: () => this.#synced(),
    });
    // Beside the first lists, which do not wait for a disk.
    this.#recalled = this.#recall();
  }

  async stop(): Promise<void> {
    this.#wait?.cancel();
    this.#ownPods.stop();
    await this.#options.source.stop();
  }

  /** The state on disk is to be served when the lists do not come. */
  fallBackLater(): void {
    const { waitMs, clock } = this.#options;
    this.#wait = clock.after(waitMs, () => void this.#fallBack());
  }

  /**
   * Resolves when it is known which endpoints are doubtful, and where they are, as far as that can be had soon. Never
   * rejects.
   */
  async settled(): Promise<void> {
    const { clock } = this.#options;
    const settled = this.#recalled.then(() => this.#ownPods.look());
    await withDeadline(settled, { clock, ms: PATIENCE_MS, late: 'it takes too long' }).catch(() => {});
  }

  /** A dial failed. */
  endpointFailed(address: Address): void {
    this.#ownPods.failed(address);
  }

  /** The time of the state on disk while that is served, in milliseconds since 1970. */
  get servedOf(): number | undefined {
    return this.#servedOf;
  }

  /**
   * In which boot that what is known was said. While the container runtime contradicts it, it is not of this one: the
   * next start must doubt it, too.
   */
  get bootId(): string {
    const { bootId } = this.#options;
    return this.#ownPods.differs ? (this.#before?.bootId ?? bootId) : bootId;
  }

  /** In an order of their own, so that the same objects are the same text. */
  *contents(): Generator<SavedObject> {
    const [node, blocks = []] = [this.node.value, this.serviceCidrs.value];
    if (node !== undefined) yield { object: encodeNode(node) };
    if (blocks.length > 0) yield { object: encodeServiceCidr(blocks) };
    // By kind and namespace, as to sort all at once takes longer than a slice of time.
    const groups = Map.groupBy(this.#known.keys(), (id) => id.slice(0, id.indexOf('/')));
    for (const group of [...groups.keys()].sort()) {
      for (const id of groups.get(group)?.sort() ?? []) {
        const object = this.#known.get(id);
        if (object !== undefined) yield { object: encodeObject(object) };
      }
    }
  }

  #apply(events: readonly SourceEvent[]): void {
    for (const event of events) {
      const id = idOf(event);
      this.#told?.add(id);
      if (isPresent(event)) this.#known.set(id, event);
      else this.#known.delete(id);
    }
    this.#sink?.apply(this.#ownPods.pass(events));
    this.#changed();
  }

  #changed(): void {
    if (this.#told === undefined) this.#options.onChange();
  }

  #synced(): void {
    const { log } = this.#options;
    const told = this.#told;
    const servedOf = this.#servedOf;
    this.#told = undefined;
    this.#servedOf = undefined;
    if (servedOf === undefined) {
      this.#sink?.synced();
    } else {
      const lost = [...this.#known].filter(([id]) => !told?.has(id)).map(([, event]) => event);
      for (const event of lost) this.#known.delete(idOf(event));
      const gone = lost.map((event) => ({ ...event, value: undefined }));
      if (gone.length > 0) this.#sink?.apply(this.#ownPods.pass(gone));
      const message = 'The API server has answered; what it says replaces the state on disk';
      log.info(message, { of: rfc3339(servedOf), removed: gone.length });
    }
    this.#compareClusters(servedOf !== undefined);
    this.#changed();
  }

  /** A server of another cluster is believed all the same: a node may have moved (docs/adr/0042). */
  #compareClusters(wasServed: boolean): void {
    const { file, log } = this.#options;
    const is = this.#options.cluster();
    if (this.#before === undefined || !isOther(this.#before, is)) return;
    const fields = { was: this.#before.cluster, is };
    if (wasServed) log.error('The state on disk, which was served until now, is of another cluster', fields);
    else
      log.warn('The API server is of another cluster than the state on disk, which it replaces', {
        ...fields,
        file: file.path,
      });
  }

  /** What the state on disk says of an earlier boot is doubtful for as long as it does not change. Never rejects. */
  async #recall(): Promise<void> {
    const { file, node, bootId, clock } = this.#options;
    try {
      // However old it is, for nothing of it is served.
      const saved = await file.read({ node, source: 'kubernetes' }, 0);
      if (saved === undefined) return;
      this.#before = saved.head;
      // The lists may have been faster.
      if (this.#told === undefined) this.#compareClusters(false);
      if (saved.head.bootId === bootId) return;
      const objects: KubernetesObject[] = [];
      await eachInSlices(clock, saved.objects, ({ object }) => {
        const read = isObject(object) && object['kind'] !== 'Service' ? decodeSaved(object) : undefined;
        if (read !== undefined) objects.push(read);
      });
      this.#ownPods.recall(objects);
      const known = objects.flatMap((object) => this.#known.get(idOf(object)) ?? []);
      const passed = this.#ownPods.pass(known);
      const doubtful = passed.filter((event, index) => event !== known[index]);
      if (doubtful.length > 0) this.#sink?.apply(doubtful);
    } catch {
      // Who falls back on it says so; for others, it is replaced.
    }
  }

  /** Never rejects. */
  async #fallBack(): Promise<void> {
    const { file, node, maxAgeMs, waitMs, source, clock, log } = this.#options;
    await this.#recalled;
    if (this.#told === undefined) return;
    const waited = `${waitMs / 1_000} s`;
    const err =
      source.status().lastContactAt === undefined
        ? `the API server has not answered within ${waited}`
        : `the lists of the API server are not complete after ${waited}`;
    try {
      const saved = await file.read({ node, source: 'kubernetes' }, maxAgeMs);
      if (saved === undefined) {
        log.warn('There is no state on disk to serve yet', { file: file.path, err });
        return;
      }
      if (isOther(saved.head, this.#options.cluster()))
        throw new UnusableState(`it is of another cluster: ${saved.head.cluster}`);
      let leftOut = 0;
      const objects: SavedValue[] = [];
      await eachInSlices(clock, saved.objects, ({ object }) => {
        const read = savedValue(object, node);
        if (read === undefined) leftOut += 1;
        else objects.push(read);
      });
      this.#deliver(saved, objects, { err, ...(leftOut > 0 && { leftOut }) });
    } catch (error) {
      reportUnusable(error, file, log);
    }
  }

  #deliver(saved: SavedState, values: readonly SavedValue[], why: LogFields): void {
    const { onRecall, log } = this.#options;
    const told = this.#told;
    // The lists have come while the file was read.
    if (told === undefined) return;
    const objects: KubernetesObject[] = [];
    for (const each of values) {
      if (each.kind === 'Node') this.node.restore(each.value);
      else if (each.kind === 'ServiceCIDR') this.serviceCidrs.restore(each.value);
      else if (!told.has(idOf(each))) objects.push(each);
    }
    for (const object of objects) this.#known.set(idOf(object), object);
    this.#servedOf = saved.knownAt;
    log.warn('The state on disk is served until the API server answers', { of: rfc3339(saved.knownAt), ...why });
    this.#sink?.apply(this.#ownPods.pass(objects));
    this.#sink?.synced();
    onRecall(objects);
  }

  /** Pods of this node are elsewhere. */
  #moved(objects: readonly KubernetesObject[]): void {
    this.#sink?.apply(objects);
    this.#changed();
  }
}

function isOther({ cluster }: Head, current: string | undefined): boolean {
  return cluster !== undefined && current !== undefined && cluster !== current;
}

type SavedValue =
  | KubernetesObject
  | { readonly kind: 'Node'; readonly value: NodeStatus }
  | { readonly kind: 'ServiceCIDR'; readonly value: readonly Cidr[] };

/** `undefined` for an object that this program cannot use, which must not cost the others. */
function savedValue(object: unknown, node: string): SavedValue | undefined {
  const kind = isObject(object) ? object['kind'] : undefined;
  if (kind === 'Node') {
    const decoded = decodeNode(object);
    return decoded.status === 'ok' && decoded.value.name === node ? { kind, value: decoded.value } : undefined;
  }
  if (kind === 'ServiceCIDR') {
    const decoded = decodeServiceCidr(object);
    return decoded.status === 'ok' ? { kind, value: decoded.value } : undefined;
  }
  return decodeSaved(object);
}
