import { isDeepStrictEqual } from 'node:util';
import type { KubernetesObject } from '../kubernetes/objects/kubernetes-object.ts';
import { type Address, familyOf } from '../model/address.ts';
import type { EndpointAddress, EndpointGroup } from '../model/endpoint.ts';
import type { PodAddresses, PodKey } from '../model/pod-addresses.ts';
import type { Clock } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

/** An endpoint that fails is a reason to ask, and many may fail at once. */
const ASK_EVERY_MS = 1_000;

export interface OwnPodsOptions {
  /** This node. */
  readonly node: string;
  /** Missing without `--cri-endpoint`. */
  readonly runtime: PodAddresses | undefined;
  /** Objects in which an endpoint has another address, or is doubtful no more, or again. */
  readonly onChange: (objects: readonly KubernetesObject[]) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The endpoints of this node in a state of an earlier boot. Their pods have been made anew, mostly at other addresses
 * (openyurt#2809), so each is doubtful until it answers, or until the container runtime says where it is.
 */
export class OwnPods {
  readonly #options: OwnPodsOptions;
  readonly #fault: LastingFault;
  /** As the state had them. */
  readonly #saved: readonly KubernetesObject[];
  readonly #pods: ReadonlySet<PodKey>;
  /** What was told last, in the order of {@link #saved}. */
  #told: readonly KubernetesObject[];
  /** Of all of them, as they were told. */
  #addresses: ReadonlySet<string>;
  #askedAtMs = Number.NEGATIVE_INFINITY;
  #isAsking = false;
  #isOver = false;

  constructor(objects: readonly KubernetesObject[], options: OwnPodsOptions) {
    this.#options = options;
    const { node, log } = options;
    this.#saved = objects.filter((object) => endpointsOf(object).some(({ nodeName }) => nodeName === node));
    this.#pods = new Set(
      this.#saved.flatMap((object) =>
        endpointsOf(object).flatMap((each) => (each.nodeName === node ? (podOf(object, each) ?? []) : [])),
      ),
    );
    this.#told = this.#saved.map((object) => settle(object, node, new Map()));
    this.#addresses = addressesOn(node, this.#told);
    this.#fault = new LastingFault({
      log,
      begun: 'The container runtime does not say where the pods of this node are; endpoints of before are tried last',
      over: 'The container runtime says where the pods of this node are',
    });
  }

  /** Those with endpoints of this node, all of which are doubtful at first. */
  get objects(): readonly KubernetesObject[] {
    return this.#told;
  }

  /** Asks the container runtime at once, and again when an endpoint fails. Never rejects. */
  async look(): Promise<void> {
    const { node, runtime, onChange, clock } = this.#options;
    if (runtime === undefined || this.#isAsking || this.#isOver || this.#pods.size === 0) return;
    this.#isAsking = true;
    this.#askedAtMs = clock.now();
    try {
      const found = await runtime.addressesOf(this.#pods);
      if (this.#isOver) return;
      const before = this.#told;
      this.#told = this.#saved.map((object, index) => {
        const now = settle(object, node, found);
        return isDeepStrictEqual(now, before[index]) ? (before[index] as KubernetesObject) : now;
      });
      this.#addresses = addressesOn(node, this.#told);
      const changed = this.#told.filter((object, index) => object !== before[index]);
      if (changed.length > 0) onChange(changed);
      this.#fault.succeeded();
    } catch (error) {
      this.#fault.failed(messageOf(error));
    } finally {
      this.#isAsking = false;
    }
  }

  /** A dial to it failed: its pod may have moved. */
  failed(address: Address): void {
    const { clock } = this.#options;
    if (clock.now() - this.#askedAtMs >= ASK_EVERY_MS && this.#addresses.has(address)) void this.look();
  }

  /** The API server has said where they are. */
  stop(): void {
    this.#isOver = true;
  }
}

function groupsOf({ kind, value }: KubernetesObject): readonly EndpointGroup[] {
  if (kind === 'EndpointSlice') return [value.group];
  return kind === 'Endpoints' ? value.groups : [];
}

function endpointsOf(object: KubernetesObject): readonly EndpointAddress[] {
  return groupsOf(object).flatMap(({ addresses }) => addresses);
}

function addressesOn(node: string, objects: readonly KubernetesObject[]): ReadonlySet<string> {
  const own = objects.flatMap(endpointsOf).filter(({ nodeName }) => nodeName === node);
  return new Set(own.map(({ address }) => address));
}

/** In the namespace of its object, as `targetRef` of an endpoint always is. */
function podOf({ key }: KubernetesObject, { podName }: EndpointAddress): PodKey | undefined {
  return podName === undefined ? undefined : `${key.slice(0, key.indexOf('/'))}/${podName}`;
}

type Found = ReadonlyMap<PodKey, readonly Address[]>;

/** With each endpoint of this node where its pod is, or doubtful. */
function settle(object: KubernetesObject, node: string, found: Found): KubernetesObject {
  const settled = <Group extends EndpointGroup>(group: Group): Group => ({
    ...group,
    addresses: group.addresses.map((each) => (each.nodeName === node ? place(object, each, found) : each)),
  });
  switch (object.kind) {
    case 'Service':
      return object;
    case 'EndpointSlice':
      return { ...object, value: { ...object.value, group: settled(object.value.group) } };
    case 'Endpoints':
      return { ...object, value: { ...object.value, groups: object.value.groups.map(settled) } };
  }
}

function place(object: KubernetesObject, endpoint: EndpointAddress, found: Found): EndpointAddress {
  const pod = podOf(object, endpoint);
  const addresses = pod && found.get(pod);
  if (addresses === undefined) return { ...endpoint, isDoubtful: true };
  const [address = endpoint.address] = addresses.filter((each) => familyOf(each) === familyOf(endpoint.address));
  return { ...endpoint, address };
}
