import { isDeepStrictEqual } from 'node:util';
import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import {
  type Endpoint,
  type EndpointGroup,
  type EndpointSlice,
  type Endpoints,
  endpointName,
} from '../model/endpoint.ts';
import {
  type Service,
  type ServiceKey,
  type ServicePortName,
  type ServicePortSpec,
  servicePortName,
} from '../model/service.ts';
import type { ServicePort, SnapshotDelta, UnservedPort } from '../model/service-port.ts';
import type { SourceEvent } from '../model/source-event.ts';

/** What is known of one Service. Each part may arrive first; endpoints outlive their Service on purpose. */
interface Entry {
  service: Service | undefined;
  endpoints: Endpoints | undefined;
  readonly slices: Map<ServiceKey, EndpointSlice>;
  /** What the last snapshot said of it. */
  served: ReadonlyMap<ServicePortName, ServicePort>;
}

/**
 * Joins Services with their endpoints. Events only record; {@link takeDelta} derives new snapshots for the Services
 * that were touched and compares them with the last ones, so an edit that was undone in between costs nothing
 * downstream, and the work is in proportion to the change.
 */
export class ServiceTracker {
  readonly #family: IpFamily;
  readonly #entries = new Map<ServiceKey, Entry>();
  /** A slice may be moved to another Service by its label; the old one must let go of it. */
  readonly #serviceOfSlice = new Map<ServiceKey, ServiceKey>();
  readonly #touched = new Set<ServiceKey>();

  constructor(family: IpFamily) {
    this.#family = family;
  }

  apply(events: readonly SourceEvent[]): void {
    for (const event of events) {
      switch (event.kind) {
        case 'Service':
          this.#touch(event.key).service = event.value;
          break;
        case 'Endpoints':
          this.#touch(event.key).endpoints = event.value;
          break;
        case 'EndpointSlice':
          this.#applySlice(event.key, event.value);
          break;
      }
    }
  }

  /** What is different since the last call. */
  takeDelta(): SnapshotDelta {
    const upserted: ServicePort[] = [];
    const removed: ServicePortName[] = [];
    const unserved: UnservedPort[] = [];
    for (const key of this.#touched) {
      const entry = this.#entries.get(key);
      if (entry === undefined) continue;
      const served = deriveServicePorts(entry, this.#family, unserved);
      for (const [name, port] of served) {
        const before = entry.served.get(name);
        if (before !== undefined && isDeepStrictEqual(before, port)) served.set(name, before);
        else upserted.push(port);
      }
      for (const name of entry.served.keys()) {
        if (!served.has(name)) removed.push(name);
      }
      entry.served = served;
      if (entry.service === undefined && entry.endpoints === undefined && entry.slices.size === 0) {
        this.#entries.delete(key);
      }
    }
    this.#touched.clear();
    return { upserted, removed, unserved };
  }

  #applySlice(key: ServiceKey, slice: EndpointSlice | undefined): void {
    const before = this.#serviceOfSlice.get(key);
    if (before !== undefined && before !== slice?.service) {
      this.#touch(before).slices.delete(key);
      this.#serviceOfSlice.delete(key);
    }
    if (slice !== undefined) {
      this.#touch(slice.service).slices.set(key, slice);
      this.#serviceOfSlice.set(key, slice.service);
    }
  }

  #touch(key: ServiceKey): Entry {
    this.#touched.add(key);
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { service: undefined, endpoints: undefined, slices: new Map(), served: new Map() };
      this.#entries.set(key, entry);
    }
    return entry;
  }
}

function deriveServicePorts(
  entry: Entry,
  family: IpFamily,
  unserved: UnservedPort[],
): Map<ServicePortName, ServicePort> {
  const served = new Map<ServicePortName, ServicePort>();
  const { service } = entry;
  if (service === undefined) return served;
  const clusterIPs = ofFamily(service.clusterIPs, family);
  const groups = endpointGroups(entry);
  for (const spec of service.ports) {
    const name = servicePortName(service.key, spec.name);
    if (spec.protocol === 'SCTP') {
      unserved.push({ name, reason: 'SCTP is not supported in user space' });
    } else if (clusterIPs.length === 0) {
      unserved.push({ name, reason: `the Service has no ${family} cluster IP, and only ${family} is served` });
    } else {
      const port: ServicePort = {
        name,
        protocol: spec.protocol,
        port: spec.port,
        nodePort: spec.nodePort,
        clusterIPs,
        externalIPs: ofFamily(service.externalIPs, family),
        loadBalancerIPs: ofFamily(service.loadBalancerIPs, family),
        affinity: service.affinity,
        endpoints: readyEndpoints(groups, spec, family),
      };
      served.set(name, Object.freeze(port));
    }
  }
  return served;
}

/**
 * A Service that has slices uses only them: the API server mirrors hand-made Endpoints into slices, so reading both
 * would count the same address twice, or keep one that its slice has already dropped.
 */
function endpointGroups(entry: Entry): readonly EndpointGroup[] {
  if (entry.slices.size > 0) return [...entry.slices.values()].map((slice) => slice.group);
  return entry.endpoints?.groups ?? [];
}

/** Ports match by name alone (upstream `pkg/proxy/userspace/roundrobin.go` BuildPortsToEndpointsMap). */
function readyEndpoints(
  groups: readonly EndpointGroup[],
  spec: ServicePortSpec,
  family: IpFamily,
): readonly Endpoint[] {
  const endpoints = new Map<string, Endpoint>();
  for (const group of groups) {
    for (const port of group.ports) {
      if (port.name !== spec.name) continue;
      for (const { address, ready } of group.addresses) {
        if (!ready || familyOf(address) !== family) continue;
        const endpoint: Endpoint = { address, port: port.port };
        endpoints.set(endpointName(endpoint), endpoint);
      }
    }
  }
  // Sorted, so that slices arriving in another order make an equal snapshot.
  return [...endpoints.keys()].sort().map((name) => endpoints.get(name) as Endpoint);
}

function ofFamily(addresses: readonly Address[], family: IpFamily): readonly Address[] {
  return addresses.filter((address) => familyOf(address) === family);
}
