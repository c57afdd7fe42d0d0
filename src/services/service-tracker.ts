import { isDeepStrictEqual } from 'node:util';
import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import {
  type Endpoint,
  type EndpointGroup,
  type EndpointSlice,
  type Endpoints,
  endpointName,
  type NamedEndpoint,
  type NodeTopology,
  type SetWeight,
} from '../model/endpoint.ts';
import {
  partsOf,
  type Service,
  type ServiceKey,
  type ServicePortName,
  type ServicePortSpec,
  servicePortName,
} from '../model/service.ts';
import {
  type Destination,
  destinations,
  type EndpointSetName,
  type HealthCheck,
  hasEndpoints,
  type ProxiedProtocol,
  type RefusedPart,
  type ServicePort,
  type SnapshotDelta,
  type UnservedPort,
} from '../model/service-port.ts';
import type { SourceEvent } from '../model/source.ts';
import type { NoEndpoints } from '../model/view.ts';
import { messageOf, stackOf } from '../util/text.ts';
import { matchesSpec } from './categorize-endpoints.ts';
import {
  type Derived,
  deriveServicePorts,
  type EndpointVerdict,
  endpointVerdicts,
  isProxied,
  type Surroundings,
} from './derive-service-ports.ts';
import { type AddressPolicy, assignedTo, endpointAddresses, KnownAddresses, serviceOf } from './known-addresses.ts';
import { whyNoEndpoints } from './no-endpoints.ts';

export interface ServiceTrackerOptions extends AddressPolicy {
  /** All families that are served now; by default only this one. */
  readonly servedFamilies?: () => readonly IpFamily[];
  /** See `Surroundings`; 0 by default. */
  readonly waitForEndpointsMs?: number;
}

/** One Service and its endpoints. Each part may arrive first, and endpoints may outlive their Service. */
interface Entry {
  service: Service | undefined;
  endpoints: Endpoints | undefined;
  // Usually one: a map takes four times the memory of a list.
  slices: readonly EndpointSlice[];
  /** As of the last delta. */
  served: readonly ServicePort[];
  healthCheck: HealthCheck | undefined;
  /** It was marked as idled, and has had no endpoint since. */
  wasIdled: boolean;
  refused: readonly RefusedPart[];
  reported: ReadonlySet<string>;
}

const EMPTY: Readonly<Entry> = {
  service: undefined,
  endpoints: undefined,
  slices: [],
  served: [],
  healthCheck: undefined,
  wasIdled: false,
  refused: [],
  reported: new Set(),
};
/** Of one Service between two deltas, which are days apart while iptables is missing. The first waited longest. */
const MAX_TRIGGERS = 256;

const NOTHING_DERIVED: Derived = {
  ports: new Map(),
  unserved: [],
  refused: [],
  healthCheck: undefined,
  awaitsPort: false,
};

/**
 * Joins Services with their endpoints, within one address family. Events only record. {@link takeDelta} derives new
 * snapshots of the touched Services and compares them with the last ones, so work is in proportion to the change.
 *
 * A Service touches another when it takes or leaves an assigned address that the other's endpoints or external IPs
 * name. A snapshot depends on the known objects and what the node says, never on the order of events; only the mark of
 * an idled Service is remembered until the Service has an endpoint.
 */
export class ServiceTracker {
  readonly #options: ServiceTrackerOptions & { readonly family: IpFamily };
  readonly #entries = new Map<ServiceKey, Entry>();
  /** A slice's label may move it to another Service. */
  readonly #serviceOfSlice = new Map<ServiceKey, ServiceKey>();
  readonly #touched = new Set<ServiceKey>();
  /** Services with a part that is left out because a program of this node has its port. */
  readonly #awaitingPorts = new Set<ServiceKey>();
  /** Of the touched Services, since the last delta with them. */
  readonly #triggers = new Map<ServiceKey, number[]>();
  /** Why a Service could not be derived, which is a defect. */
  readonly #faults = new Map<ServiceKey, string>();
  /** What Services claim. Only this tracker adds to it. */
  readonly addresses: KnownAddresses;
  #topology: NodeTopology = {};
  /** By {@link endpointName}. */
  #weights: ReadonlyMap<string, SetWeight> = new Map();

  constructor(family: IpFamily, options: ServiceTrackerOptions = {}) {
    this.#options = { ...options, family };
    this.addresses = new KnownAddresses(options);
  }

  apply(events: readonly SourceEvent[]): void {
    for (const { kind, key, value } of events) {
      if (kind === 'Service') this.#applyService(key, value);
      else if (kind === 'Endpoints') this.#applyEndpoints(key, value);
      else this.#applySlice(key, value);
    }
  }

  /** Everything known, one Service at a time. Apply each step's events to another tracker before further events. */
  *contents(): Generator<readonly SourceEvent[]> {
    for (const [key, { service, endpoints, slices }] of this.#entries) {
      yield [
        { kind: 'Service', key, value: service },
        { kind: 'Endpoints', key, value: endpoints },
        ...slices.map((slice): SourceEvent => ({ kind: 'EndpointSlice', key: slice.key, value: slice })),
      ];
    }
  }

  /** Until it is set, no endpoint is local. */
  setTopology(topology: NodeTopology): void {
    if (isDeepStrictEqual(topology, this.#topology)) return;
    this.#topology = topology;
    this.#touchAll();
  }

  /** Touches the Services that name an address that came or went: the others do not change. */
  setNodeAddresses(addresses: Iterable<Address>): void {
    const before = this.addresses.nodeAddresses;
    const after = new Set(addresses);
    this.addresses.nodeAddresses = after;
    for (const address of [...before, ...after]) {
      if (before.has(address) === after.has(address)) continue;
      this.#touchReferrers(address);
      for (const { key } of this.addresses.withAssigned(address)) this.#touched.add(key);
    }
  }

  /** All weights that an operator has set. Work is in proportion to the difference. */
  setWeights(weights: Iterable<SetWeight>): void {
    const before = this.#weights;
    const after = new Map([...weights].map((each) => [endpointName(each), each]));
    this.#weights = after;
    for (const [name, { address, weight }] of after) {
      if (before.get(name)?.weight !== weight) this.#touchReferrers(address);
    }
    for (const [name, { address }] of before) if (!after.has(name)) this.#touchReferrers(address);
  }

  /**
   * Other ports of this node may be in use. Touches the Services that name this node, or the API server, or that lack a
   * port.
   */
  listeningChanged(): void {
    for (const key of this.#awaitingPorts) this.#touched.add(key);
    for (const address of this.addresses.onThisNode()) this.#touchReferrers(address);
    for (const { address } of this.addresses.apiServers()) this.#touchReferrers(address);
  }

  /** The verdict of an endpoint set on every known endpoint, perhaps ahead of {@link takeDelta}. */
  candidates(name: ServicePortName, set: EndpointSetName): readonly EndpointVerdict[] {
    const known = this.#servicePort(name);
    if (known === undefined) return [];
    return endpointVerdicts(known.service, known.spec, set, endpointGroups(known.entry), this.#surroundings());
  }

  /**
   * Why no endpoint of the set may serve; `undefined` if one may. Current like {@link candidates}. `isBrief`: without a
   * look at other namespaces, which takes as long as there are Services.
   */
  noEndpoints(name: ServicePortName, set: EndpointSetName, { isBrief = false } = {}): NoEndpoints | undefined {
    const known = this.#servicePort(name);
    if (known === undefined) return undefined;
    const { entry, service, spec } = known;
    const verdicts = this.candidates(name, set);
    if (verdicts.some(({ reason }) => reason === undefined)) return undefined;
    const groups = hasEndpointObjects(entry) ? endpointGroups(entry) : undefined;
    const otherNamespaces = () => (isBrief ? [] : this.#namespacesWithoutService(service.key));
    const { family } = this.#options;
    const isIdled = service.options?.isIdled === true;
    return whyNoEndpoints({ name, spec, family, isIdled, groups, verdicts, otherNamespaces });
  }

  /** Of the Service, for events about it. */
  uidOf(name: ServicePortName): string | undefined {
    return this.#servicePort(name)?.service.uid;
  }

  /** The Service ports that have this endpoint, ready or not; some may come twice. One object for each step. */
  *withEndpoint({ address, port }: Endpoint): Generator<readonly ServicePortName[], undefined> {
    for (const referrer of this.addresses.referrersOf(address)) {
      const key = serviceOf(referrer);
      const entry = this.#entries.get(key);
      if (entry?.service === undefined) continue;
      const ports = groupsWith(address, referrer, entry).flatMap((group) => group.ports);
      const isAt = (spec: ServicePortSpec) => ports.some((each) => matchesSpec(each, spec) && each.port === port);
      yield entry.service.ports.filter(isAt).map(({ name }) => servicePortName(key, name));
    }
  }

  /** The Service ports that claim this address and port; one of them is served there. Looks at every Service. */
  claimants(address: Address, port: number, protocol: ProxiedProtocol): readonly ServicePort[] {
    const isHere = this.addresses.isThisNode(address);
    const isMeant = (to: Destination) =>
      to.port === port && (to.address === undefined ? isHere : to.address === address);
    return this.#servedWhere((each) => each.protocol === protocol && destinations(each).some(isMeant));
  }

  /** What this Service port goes without, as of the last delta. */
  refusedOf(name: ServicePortName): readonly RefusedPart[] {
    const { namespace, service } = partsOf(name);
    const key: ServiceKey = `${namespace}/${service}`;
    const { refused = [] } = this.#entries.get(key) ?? {};
    return refused.length === 0 ? refused : refused.filter((part) => part.name === name || part.name === key);
  }

  /** What Service ports go without that ask for this address and port. */
  refusedAt(address: Address, port: number, protocol: ProxiedProtocol): readonly RefusedPart[] {
    const isHere = this.addresses.isThisNode(address);
    const at = endpointName({ address, port });
    return Array.from(this.#entries.values()).flatMap(({ service, refused }) => {
      if (service === undefined || refused.length === 0) return [];
      const asks = (spec: ServicePortSpec, { what }: RefusedPart) =>
        spec.protocol === protocol &&
        ((isHere && spec.nodePort === port && what.startsWith(`NodePort ${port}/`)) ||
          (spec.port === port && / IP /.test(what) && what.split(/[ ,]+/).includes(at)));
      return refused.filter((part) =>
        service.ports.some((spec) => part.name === servicePortName(service.key, spec.name) && asks(spec, part)),
      );
    });
  }

  /** Service ports with this address, whatever their port and protocol. */
  withAddress(address: Address): readonly ServicePort[] {
    return this.#servedWhere((each) => destinations(each).some((to) => to.address === address));
  }

  #servedWhere(isMeant: (each: ServicePort) => boolean): readonly ServicePort[] {
    return Array.from(this.#entries.values()).flatMap(({ served }) => served.filter(isMeant));
  }

  /** How many Services {@link takeDelta} has left. */
  get pendingServices(): number {
    return this.#touched.size;
  }

  /** What changed since the last call, in the first `maxServices` of the touched Services. */
  takeDelta(maxServices = Number.POSITIVE_INFINITY): SnapshotDelta {
    const delta = emptyDelta();
    const surroundings = this.#surroundings();
    let left = maxServices;
    for (const key of this.#touched) {
      if (left-- <= 0) break;
      this.#touched.delete(key);
      for (const at of this.#triggers.get(key) ?? []) delta.triggeredAt.push(at);
      this.#triggers.delete(key);
      const entry = this.#entries.get(key);
      if (entry === undefined) continue;
      const { service } = entry;
      const derived = this.#derive(key, entry, surroundings, delta);
      if (derived === undefined) continue;
      const isIdled = service !== undefined && (entry.wasIdled || service.options?.isIdled === true);
      entry.wasIdled = isIdled && ![...derived.ports.values()].some(hasEndpoints);
      update(entry, derived, delta);
      if (derived.awaitsPort) this.#awaitingPorts.add(key);
      else this.#awaitingPorts.delete(key);
      if (!isDeepStrictEqual(derived.healthCheck, entry.healthCheck)) {
        entry.healthCheck = derived.healthCheck;
        delta.healthChecks.set(key, derived.healthCheck);
      }
      if (service === undefined && !hasEndpointObjects(entry)) this.#entries.delete(key);
    }
    return delta;
  }

  /** `undefined` after an exception, which must not cost the other Services. */
  #derive(key: ServiceKey, entry: Entry, surroundings: Surroundings, delta: Delta): Derived | undefined {
    const { service } = entry;
    try {
      const derived =
        service === undefined
          ? NOTHING_DERIVED
          : deriveServicePorts(service, endpointGroups(entry), surroundings, entry.wasIdled);
      if (this.#faults.delete(key)) delta.failed.set(key, undefined);
      return derived;
    } catch (error) {
      const err = messageOf(error);
      if (err !== this.#faults.get(key)) delta.failed.set(key, stackOf(error));
      this.#faults.set(key, err);
      return undefined;
    }
  }

  #servicePort(name: ServicePortName) {
    const [key] = name.split(':') as [ServiceKey];
    const entry = this.#entries.get(key);
    const spec = entry?.service?.ports.find((port) => servicePortName(key, port.name) === name);
    if (entry?.service === undefined || spec === undefined || !isProxied(spec)) return undefined;
    return { entry, service: entry.service, spec };
  }

  /** Those that have endpoints for a Service of this name, but not the Service. */
  #namespacesWithoutService(key: ServiceKey): readonly string[] {
    const ending = key.slice(key.indexOf('/'));
    return [...this.#entries]
      .filter(([other, entry]) => other.endsWith(ending) && entry.service === undefined && hasEndpointObjects(entry))
      .map(([other]) => other.slice(0, -ending.length));
  }

  #applyService(key: ServiceKey, service: Service | undefined): void {
    const entry = this.#touch(key);
    const before = entry.service;
    entry.service = service;
    if (before !== undefined) {
      this.addresses.deleteService(before);
      this.#touchRivals(before);
    }
    if (service !== undefined) {
      this.addresses.addService(service);
      this.#touchRivals(service);
    }
    if (!isDeepStrictEqual(nodePortsOf(before), nodePortsOf(service))) this.listeningChanged();
  }

  #applyEndpoints(key: ServiceKey, endpoints: Endpoints | undefined): void {
    const entry = this.#touch(key);
    if (entry.endpoints !== undefined) this.#forget(entry.endpoints);
    entry.endpoints = endpoints;
    if (endpoints !== undefined) this.#remember(endpoints);
  }

  #applySlice(key: ServiceKey, slice: EndpointSlice | undefined): void {
    const service = this.#serviceOfSlice.get(key);
    if (service !== undefined) {
      const entry = this.#touch(service);
      const before = entry.slices.find((known) => known.key === key);
      if (before !== undefined) this.#forget(before);
      entry.slices = entry.slices.filter((known) => known !== before);
      this.#serviceOfSlice.delete(key);
    }
    if (slice !== undefined) {
      const entry = this.#touch(slice.service);
      entry.slices = entry.slices.concat(slice);
      this.#serviceOfSlice.set(key, slice.service);
      this.#remember(slice);
      this.#noteTrigger(slice);
    }
  }

  #noteTrigger({ service, group, triggeredAt }: EndpointSlice): void {
    const [first] = group.addresses;
    if (triggeredAt === undefined || first === undefined || familyOf(first.address) !== this.#options.family) return;
    const known = this.#triggers.get(service);
    if (known === undefined) this.#triggers.set(service, [triggeredAt]);
    else if (known.length < MAX_TRIGGERS) known.push(triggeredAt);
  }

  #remember(object: Endpoints | EndpointSlice): void {
    this.addresses.addEndpoints(object);
    this.#touchExternal(object);
  }

  #forget(object: Endpoints | EndpointSlice): void {
    this.addresses.deleteEndpoints(object);
    this.#touchExternal(object);
  }

  #touch(key: ServiceKey): Entry {
    this.#touched.add(key);
    const entry = this.#entries.get(key) ?? { ...EMPTY };
    this.#entries.set(key, entry);
    return entry;
  }

  #touchAll(): void {
    for (const key of this.#entries.keys()) this.#touched.add(key);
  }

  /** Touches those that name an assigned address of this Service. Its external IPs change nothing for others. */
  #touchRivals(service: Service): void {
    for (const address of assignedTo(service)) this.#touchReferrers(address);
  }

  /** Touches those that name an address of these endpoints as an external IP. */
  #touchExternal(object: Endpoints | EndpointSlice): void {
    for (const address of endpointAddresses(object)) {
      for (const { key } of this.addresses.withExternalIP(address)) this.#touched.add(key);
    }
  }

  #touchReferrers(address: Address): void {
    for (const referrer of this.addresses.referrersOf(address)) this.#touched.add(serviceOf(referrer));
  }

  #surroundings(): Surroundings {
    const { family, servedFamilies = () => [family], waitForEndpointsMs = 0 } = this.#options;
    const weights = this.#weights;
    const weightOf = ({ name }: NamedEndpoint) => weights.get(name)?.weight;
    const [topology, addresses] = [this.#topology, this.addresses];
    return { family, servedFamilies: servedFamilies(), topology, addresses, weightOf, waitForEndpointsMs };
  }
}

/**
 * A Service with slices uses only them: the API server mirrors hand-made Endpoints into slices, so Endpoints could keep
 * an address that its slice has dropped.
 */
function endpointGroups(entry: Entry): readonly EndpointGroup[] {
  if (entry.slices.length > 0) return entry.slices.map((slice) => slice.group);
  return entry.endpoints?.groups ?? [];
}

function hasEndpointObjects({ endpoints, slices }: Entry): boolean {
  return endpoints !== undefined || slices.length > 0;
}

/** The groups of an object that have this address and that its Service uses. */
function groupsWith(
  address: Address,
  referrer: Service | Endpoints | EndpointSlice,
  { slices }: Entry,
): readonly EndpointGroup[] {
  if ('group' in referrer) return [referrer.group];
  if (!('groups' in referrer) || slices.length > 0) return [];
  return referrer.groups.filter(({ addresses }) => addresses.some((each) => each.address === address));
}

type Delta = ReturnType<typeof emptyDelta>;

function emptyDelta() {
  return {
    upserted: [] as ServicePort[],
    removed: [] as ServicePortName[],
    unserved: [] as UnservedPort[],
    refused: [] as RefusedPart[],
    healthChecks: new Map<ServiceKey, HealthCheck | undefined>(),
    failed: new Map<ServiceKey, string | undefined>(),
    triggeredAt: [] as number[],
  } satisfies SnapshotDelta;
}

/** Stores what was derived, and adds what is new to `delta`. */
function update(entry: Entry, derived: Derived, delta: Delta): void {
  const last = new Map(entry.served.map((port) => [port.name, port]));
  entry.served = [...derived.ports.values()].map((port) => {
    const before = last.get(port.name);
    if (before !== undefined && isDeepStrictEqual(before, port)) return before;
    delta.upserted.push(port);
    return port;
  });
  for (const name of last.keys()) {
    if (!derived.ports.has(name)) delta.removed.push(name);
  }

  entry.refused = derived.refused;
  if (derived.unserved.length + derived.refused.length + entry.reported.size === 0) return;
  const reported = new Set<string>();
  const isNew = (part: UnservedPort | RefusedPart) => {
    const text = JSON.stringify(part);
    reported.add(text);
    return !entry.reported.has(text);
  };
  delta.unserved.push(...derived.unserved.filter(isNew));
  delta.refused.push(...derived.refused.filter(isNew));
  entry.reported = reported;
}

function nodePortsOf(service: Service | undefined): readonly string[] {
  const ports = service?.ports.filter(({ nodePort }) => nodePort !== 0) ?? [];
  return ports.map(({ nodePort, protocol }) => `${nodePort}/${protocol}`).toSorted();
}
