import { type Address, type Cidr, cidrContains } from '../model/address.ts';
import type { Endpoint, EndpointGroup, EndpointSlice, Endpoints } from '../model/endpoint.ts';
import type { Protocol, Service, ServiceKey } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';

/** A NodePort, or a port for health checks. */
export interface NodePort {
  readonly port: number;
  readonly protocol: Protocol;
}

export interface AddressPolicy {
  /** Our rules leave the proxy's own connections alone (docs/adr/0019). */
  readonly isMarking?: boolean;
  /** Only external IPs in these are accepted. Absent: no such limit. */
  readonly allowedExternalIPs?: readonly Cidr[];
  /** Where pods are, also those of headless Services, whose endpoints are unknown. */
  readonly podCidrs?: readonly Cidr[];
  /** Whether another program of this node listens there; by default, none does. */
  readonly isListening?: (address: Address, port: number, protocol: ProxiedProtocol) => boolean;
}

/** An object that names an address as an endpoint or as an external IP. */
export type Mention = Service | Endpoints | EndpointSlice;

/**
 * The addresses and ports of all Services, endpoints and this node. Refuses endpoints whose connections would come back
 * to the proxy, and external IPs that would take other traffic.
 */
export class KnownAddresses {
  nodeAddresses: ReadonlySet<Address> = new Set();
  /** Of the proxy's listeners. Call `ServiceTracker.listeningChanged` when these sets change. */
  proxyPorts: Readonly<Record<ProxiedProtocol, ReadonlySet<number>>> = { TCP: new Set(), UDP: new Set() };
  readonly #policy: AddressPolicy;
  readonly #services = new AddressIndex<Service>();
  readonly #mentions = new AddressIndex<Mention>();
  /** How many Services have it, by `port/protocol`. */
  readonly #nodePorts = new Map<string, number>();
  /** How many Services use a health check node port, by port. */
  readonly #healthCheckPorts = new Map<number, number>();
  #newPorts: NodePort[] = [];

  constructor(policy: AddressPolicy = {}) {
    this.#policy = policy;
  }

  addService(service: Service): void {
    for (const address of addressesOf(service)) this.#services.add(address, service);
    for (const address of service.externalIPs) this.#mentions.add(address, service);
    this.#countPorts(service, 1);
  }

  deleteService(service: Service): void {
    for (const address of addressesOf(service)) this.#services.delete(address, service);
    for (const address of service.externalIPs) this.#mentions.delete(address, service);
    this.#countPorts(service, -1);
  }

  addEndpoints(object: Endpoints | EndpointSlice): void {
    for (const address of endpointAddresses(object)) this.#mentions.add(address, object);
  }

  deleteEndpoints(object: Endpoints | EndpointSlice): void {
    for (const address of endpointAddresses(object)) this.#mentions.delete(address, object);
  }

  mentionsOf(address: Address): Iterable<Mention> {
    return this.#mentions.of(address);
  }

  *withExternalIP(address: Address): Generator<Service> {
    for (const service of this.#services.of(address)) if (service.externalIPs.includes(address)) yield service;
  }

  /** Whether a Service needs this port of the node, as a NodePort or for health checks. */
  needsPort(port: number, protocol: ProxiedProtocol): boolean {
    return this.#hasNodePort(port, protocol) || (protocol === 'TCP' && this.#healthCheckPorts.has(port));
  }

  /** The ports that {@link needsPort} has gained since the last call. */
  takeNewPorts(): readonly NodePort[] {
    const ports = this.#newPorts;
    if (ports.length > 0) this.#newPorts = [];
    return ports;
  }

  /**
   * Why a connection to this endpoint would come back to the proxy, and open another until descriptors run out;
   * `undefined` when it would not.
   */
  loopReason({ address, port }: Endpoint, protocol: ProxiedProtocol): string | undefined {
    const because = (what: string) => `it is ${what}, so connections would come back to the proxy`;
    // Anyone may write an external IP, so it does not count.
    const isAssigned = this.#hasService(
      address,
      ({ clusterIPs, loadBalancerIPs, ports }) =>
        (clusterIPs.includes(address) || loadBalancerIPs.includes(address)) &&
        ports.some((spec) => spec.port === port && spec.protocol === protocol),
    );
    if (isAssigned) return because('an address of a Service');
    if (!this.nodeAddresses.has(address)) return undefined;
    if (!this.#policy.isMarking && this.#hasNodePort(port, protocol)) return because('a NodePort on this node');
    if (this.proxyPorts[protocol].has(port)) return because("one of the proxy's own ports");
    return undefined;
  }

  /**
   * Why this external IP and port must have no rules; `undefined` when they may. Anyone who may write a Service chooses
   * its external IPs (CVE-2020-8554), and rules for them take packets from everywhere (docs/adr/0017).
   */
  externalIpRefusal({ address, port }: Endpoint, protocol: ProxiedProtocol, service: ServiceKey): string | undefined {
    const { allowedExternalIPs, podCidrs = [], isListening, isMarking } = this.#policy;
    if (allowedExternalIPs !== undefined && !allowedExternalIPs.some((cidr) => cidrContains(cidr, address))) {
      return 'it is not among the external IPs that are allowed';
    }
    if (this.#hasService(address, ({ clusterIPs }) => clusterIPs.includes(address))) {
      return 'it is the cluster IP of a Service';
    }
    // Without the mark, rules would also take the proxy's own connections to an endpoint of this Service.
    const isForeign = (key: ServiceKey) => key !== service || !isMarking;
    if (this.#isEndpoint({ address, port }, protocol, isForeign)) return 'it is an endpoint of a Service';
    if (!this.nodeAddresses.has(address)) {
      const isOfPod = podCidrs.some((cidr) => cidrContains(cidr, address));
      return isOfPod ? 'it is in the range of pod addresses (--cluster-cidr)' : undefined;
    }
    if (this.#hasNodePort(port, protocol)) return 'that port of this node is the NodePort of a Service';
    if (isListening?.(address, port, protocol)) return 'a program on this node listens on that address and port';
    return undefined;
  }

  #hasNodePort(port: number, protocol: ProxiedProtocol): boolean {
    return this.#nodePorts.has(`${port}/${protocol}`);
  }

  #hasService(address: Address, isMeant: (service: Service) => boolean): boolean {
    for (const service of this.#services.of(address)) if (isMeant(service)) return true;
    return false;
  }

  /** Ready or not. */
  #isEndpoint({ address, port }: Endpoint, protocol: ProxiedProtocol, isMeant: (key: ServiceKey) => boolean): boolean {
    for (const mention of this.#mentions.of(address)) {
      if ('ports' in mention || !isMeant(serviceOf(mention))) continue;
      const isHere = ({ addresses, ports }: EndpointGroup) =>
        ports.some((each) => each.port === port && each.protocol === protocol) &&
        addresses.some((each) => each.address === address);
      if (groupsOf(mention).some(isHere)) return true;
    }
    return false;
  }

  #countPorts({ ports, healthCheckNodePort: healthPort }: Service, by: 1 | -1): void {
    for (const { nodePort: port, protocol } of ports) {
      if (port !== 0 && count(this.#nodePorts, `${port}/${protocol}`, by)) this.#newPorts.push({ port, protocol });
    }
    if (healthPort !== undefined && count(this.#healthCheckPorts, healthPort, by)) {
      this.#newPorts.push({ port: healthPort, protocol: 'TCP' });
    }
  }
}

/** Returns whether it is the first. */
function count<K>(counts: Map<K, number>, key: K, by: 1 | -1): boolean {
  const before = counts.get(key) ?? 0;
  if (before + by === 0) counts.delete(key);
  else counts.set(key, before + by);
  return before === 0;
}

/** Some may come twice. */
export function addressesOf({ clusterIPs, loadBalancerIPs, externalIPs }: Service): readonly Address[] {
  return [...clusterIPs, ...loadBalancerIPs, ...externalIPs];
}

export function serviceOf(mention: Mention): ServiceKey {
  return 'service' in mention ? mention.service : mention.key;
}

export function groupsOf(object: Endpoints | EndpointSlice): readonly EndpointGroup[] {
  return 'group' in object ? [object.group] : object.groups;
}

export function* endpointAddresses(object: Endpoints | EndpointSlice): Generator<Address> {
  for (const { addresses } of groupsOf(object)) for (const { address } of addresses) yield address;
}

/** Most addresses have one object, so only others pay for a set. */
class AddressIndex<T extends object> {
  readonly #objects = new Map<Address, T | Set<T>>();

  add(address: Address, object: T): void {
    const known = this.#objects.get(address);
    if (known === undefined || known === object) this.#objects.set(address, object);
    else if (known instanceof Set) known.add(object);
    else this.#objects.set(address, new Set([known, object]));
  }

  delete(address: Address, object: T): void {
    const known = this.#objects.get(address);
    if (known instanceof Set) {
      known.delete(object);
      if (known.size === 0) this.#objects.delete(address);
    } else if (known === object) {
      this.#objects.delete(address);
    }
  }

  of(address: Address): Iterable<T> {
    const known = this.#objects.get(address);
    if (known === undefined) return [];
    return known instanceof Set ? known : [known];
  }
}
