import { isDeepStrictEqual } from 'node:util';
import { encodeObject } from '../kubernetes/objects/encode.ts';
import { isPresent, type KubernetesObject } from '../kubernetes/objects/kubernetes-object.ts';
import { type Address, familyOf } from '../model/address.ts';
import type { EndpointAddress, EndpointGroup } from '../model/endpoint.ts';
import type { PodAddresses, PodKey } from '../model/pod-addresses.ts';
import { idOf, type SourceEvent } from '../model/source.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { backoffMs } from '../util/wait.ts';

/** An endpoint that fails is a reason to ask, and many may fail at once. */
const ASK_EVERY_MS = 1_000;
/** While a pod is not found: kubelet makes it within seconds, or its image is missing, or it is gone for good. */
const ASK_AGAIN = { firstMs: 2_000, maxMs: 30_000 };

type Found = ReadonlyMap<PodKey, readonly Address[]>;

export interface OwnPodsOptions {
  /** This node. */
  readonly node: string;
  /** Of this machine, now: what is there has not moved. */
  readonly localAddresses: () => readonly Address[];
  /** Missing without `--cri-endpoint`. */
  readonly runtime: PodAddresses | undefined;
  /** Objects in which an endpoint has another address, or is doubtful no more, or again. */
  readonly onChange: (objects: readonly KubernetesObject[]) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The endpoints of this node in objects that are what they were before the machine started anew. Whoever says so, the
 * state on disk or a cache in front of the API server, knows nothing of that start: pods have been made anew, mostly at
 * other addresses (openyurt#2809). So each is doubtful until it answers, until the container runtime says where it is,
 * or until its object changes.
 */
export class OwnPods {
  readonly #options: OwnPodsOptions;
  readonly #fault: LastingFault;
  /** Addresses of this machine. */
  #local: ReadonlySet<Address> = new Set();
  /** Unchanged since before the start of the machine, as far as anybody has said. */
  readonly #earlier = new Map<string, KubernetesObject>();
  /** Those that have been passed on, as they were then. */
  readonly #told = new Map<string, KubernetesObject>();
  #found: Found = new Map();
  #asking: Promise<void> | undefined;
  #askedAtMs = Number.NEGATIVE_INFINITY;
  /** In a row. */
  #askedInVain = 0;
  #next: Timer | undefined;
  #isOver = false;

  constructor(options: OwnPodsOptions) {
    this.#options = options;
    this.#fault = new LastingFault({
      log: options.log,
      begun: 'The container runtime does not say where the pods of this node are; endpoints of before are tried last',
      over: 'The container runtime says where the pods of this node are',
    });
  }

  /** What was said before the machine started anew. */
  recall(objects: Iterable<KubernetesObject>): void {
    this.#local = new Set(this.#options.localAddresses());
    for (const object of objects) if (this.#ownOf(object).length > 0) this.#earlier.set(idOf(object), object);
  }

  /** The events as they are to be told: those of objects that are what they were have doubtful endpoints. */
  pass(events: readonly SourceEvent[]): readonly SourceEvent[] {
    if (this.#earlier.size === 0) return events;
    const passed = events.map((event) => this.#pass(event));
    if (passed.some((event, index) => event !== events[index])) void this.look();
    return passed;
  }

  /** Whether the container runtime does not confirm, so far, what was said of the endpoints. */
  get differs(): boolean {
    if (this.#options.runtime === undefined) return false;
    return [...this.#told].some(([id, told]) => told !== this.#earlier.get(id));
  }

  /** Asks the container runtime, as is done of itself when there is a doubt. Never rejects. */
  look(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** A dial to it failed: its pod may have moved. */
  failed(address: Address): void {
    if (this.#told.size === 0 || this.#options.clock.now() - this.#askedAtMs < ASK_EVERY_MS) return;
    const isOwn = [...this.#told.values()].some((object) => this.#ownOf(object).some((own) => own.address === address));
    if (isOwn) void this.look();
  }

  stop(): void {
    this.#next?.cancel();
    this.#isOver = true;
  }

  #pass(event: SourceEvent): SourceEvent {
    const id = idOf(event);
    const before = this.#earlier.get(id);
    if (before === undefined) return event;
    if (!isPresent(event) || !isSame(event, before)) {
      this.#earlier.delete(id);
      this.#told.delete(id);
      return event;
    }
    const told = this.#settle(event);
    this.#earlier.set(id, event);
    this.#told.set(id, told);
    return told;
  }

  async #ask(): Promise<void> {
    const { runtime, onChange, clock } = this.#options;
    const pods = this.#pods();
    if (runtime === undefined || this.#isOver || pods.size === 0) return;
    this.#askedAtMs = clock.now();
    try {
      this.#found = await runtime.addressesOf(pods);
      if (this.#isOver) return;
      const changed: KubernetesObject[] = [];
      for (const [id, before] of this.#told) {
        const now = this.#settle(this.#earlier.get(id) ?? before);
        if (isDeepStrictEqual(now, before)) continue;
        this.#told.set(id, now);
        changed.push(now);
      }
      if (changed.length > 0) onChange(changed);
      this.#fault.succeeded();
    } catch (error) {
      this.#fault.failed(messageOf(error));
    }
    this.#askAgain();
  }

  /**
   * Until all are found, without a failure as well: a UDP endpoint that is not there is silent, as one may be that is.
   * An answer is no reason to stop, for it may be that of another pod.
   */
  #askAgain(): void {
    this.#next?.cancel();
    const isComplete = [...this.#pods()].every((pod) => this.#found.has(pod));
    this.#askedInVain = isComplete ? 0 : this.#askedInVain + 1;
    if (isComplete || this.#isOver) return;
    this.#next = this.#options.clock.after(backoffMs(this.#askedInVain, ASK_AGAIN), () => void this.look());
  }

  /** Those whose endpoints may have moved. */
  #pods(): ReadonlySet<PodKey> {
    const objects = [...this.#told.values()];
    return new Set(objects.flatMap((object) => this.#ownOf(object).flatMap((each) => podOf(object, each) ?? [])));
  }

  /** The endpoints that may have moved. */
  #ownOf(object: KubernetesObject): readonly EndpointAddress[] {
    return groupsOf(object).flatMap(({ addresses }) => addresses.filter((each) => this.#isOwn(each)));
  }

  #isOwn({ nodeName, address }: EndpointAddress): boolean {
    return nodeName === this.#options.node && !this.#local.has(address);
  }

  /** With each endpoint where its pod is, or doubtful; the same object where that changes nothing. */
  #settle(object: KubernetesObject): KubernetesObject {
    const before = groupsOf(object);
    const groups = before.map((group) => {
      const addresses = group.addresses.map((each) => (this.#isOwn(each) ? place(object, each, this.#found) : each));
      return addresses.every((each, index) => each === group.addresses[index]) ? group : { ...group, addresses };
    });
    if (groups.every((group, index) => group === before[index])) return object;
    switch (object.kind) {
      case 'EndpointSlice':
        return { ...object, value: { ...object.value, group: groups[0] as EndpointGroup } };
      case 'Endpoints':
        return { ...object, value: { ...object.value, groups } };
      case 'Service':
        return object;
    }
  }
}

/** In all that is kept on disk. */
function isSame(one: KubernetesObject, other: KubernetesObject): boolean {
  return isDeepStrictEqual(encodeObject(one), encodeObject(other));
}

function groupsOf({ kind, value }: KubernetesObject): readonly EndpointGroup[] {
  if (kind === 'EndpointSlice') return [value.group];
  return kind === 'Endpoints' ? value.groups : [];
}

/** In the namespace of the object, as `targetRef` of an endpoint always is. */
function podOf({ key }: KubernetesObject, { podName }: EndpointAddress): PodKey | undefined {
  return podName === undefined ? undefined : `${key.slice(0, key.indexOf('/'))}/${podName}`;
}

/** The same endpoint where nothing says otherwise, or at the address that its pod has now, or doubtful. */
function place(object: KubernetesObject, endpoint: EndpointAddress, found: Found): EndpointAddress {
  const pod = podOf(object, endpoint);
  const addresses = pod && found.get(pod);
  if (addresses === undefined) return { ...endpoint, isDoubtful: true };
  const [address = endpoint.address] = addresses.filter((each) => familyOf(each) === familyOf(endpoint.address));
  return address === endpoint.address ? endpoint : { ...endpoint, address };
}
