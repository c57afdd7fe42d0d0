import { type Address, type Cidr, cidrContains, isLoopback, type PortRange } from '../model/address.ts';
import type { Endpoint, EndpointGroup, EndpointSlice, Endpoints } from '../model/endpoint.ts';
import type { Protocol, Service, ServiceKey, ServicePortName } from '../model/service.ts';
import type { Destination, ProxiedProtocol } from '../model/service-port.ts';
import type { Found } from '../util/found.ts';

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
  /** Where this program reaches the API server. */
  readonly apiServers?: () => readonly Endpoint[];
  /** At which endpoints at the addresses of this node need nobody to vouch for them. Absent: at all ports. */
  readonly nodeEndpointPorts?: readonly PortRange[];
  /** Of the proxy's own HTTP servers. */
  readonly httpPorts?: ReadonlySet<number>;
  /**
   * Whether another program of this node listens there; by default, none does. Without an address: at any address of
   * the family.
   */
  readonly isListening?: (address: Address | undefined, port: number, protocol: ProxiedProtocol) => boolean;
  /** The addresses of this node that serve NodePorts. Absent or `undefined`: all. */
  readonly nodePortAddresses?: () => readonly Address[] | undefined;
  /** Whether the installed rules route this destination to that Service port; by default, they do not. */
  readonly holds?: (name: ServicePortName, to: PortOfNode, protocol: ProxiedProtocol) => boolean;
}

/** A port of this node. Without an address: at those that serve NodePorts. */
export type PortOfNode = Pick<Destination, 'address' | 'port'>;

/** An object that names an address as an endpoint or as an external IP. */
export type Referrer = Service | Endpoints | EndpointSlice;

/** `port/protocol` of endpoints, by address. */
export type EndpointPorts = Map<Address, ReadonlySet<string>>;

/** No Pod listens there on any node. */
const KUBELET_PORTS: ReadonlySet<number> = new Set([10_248, 10_250, 10_255]);

/**
 * The addresses and ports of all Services, endpoints and this node. Refuses endpoints whose connections would come back
 * to the proxy, and external IPs that would take other traffic.
 */
export class KnownAddresses {
  nodeAddresses: ReadonlySet<Address> = new Set();
  /** Of the proxy's listeners. Call `ServiceTracker.listeningChanged` when these sets change. */
  proxyPorts: Readonly<Record<ProxiedProtocol, ReadonlySet<number>>> = { TCP: new Set(), UDP: new Set() };
  readonly #policy: AddressPolicy;
  /** How many Services have it as a cluster IP. */
  readonly #clusterIPs = new Map<Address, number>();
  /** By cluster IPs and load-balancer IPs. */
  readonly #assigned = new AddressIndex<Service>();
  // Apart, because thousands of Services may share an external IP, and each asks for its endpoints.
  readonly #externalIPs = new AddressIndex<Service>();
  readonly #endpoints = new AddressIndex<Endpoints | EndpointSlice>();
  /** How often an endpoint has it, by loopback address. */
  readonly #loopback = new Map<Address, number>();
  /** How many Services have it, by `port/protocol`. */
  readonly #nodePorts = new Map<string, number>();
  /** How many Services use a health check node port, by port. */
  readonly #healthCheckPorts = new Map<number, number>();
  #newPorts: NodePort[] = [];

  constructor(policy: AddressPolicy = {}) {
    this.#policy = policy;
  }

  addService(service: Service): void {
    for (const address of service.clusterIPs) count(this.#clusterIPs, address, 1);
    for (const address of assignedTo(service)) this.#assigned.add(address, service);
    for (const address of service.externalIPs) this.#externalIPs.add(address, service);
    this.#countPorts(service, 1);
  }

  deleteService(service: Service): void {
    for (const address of service.clusterIPs) count(this.#clusterIPs, address, -1);
    for (const address of assignedTo(service)) this.#assigned.delete(address, service);
    for (const address of service.externalIPs) this.#externalIPs.delete(address, service);
    this.#countPorts(service, -1);
  }

  addEndpoints(object: Endpoints | EndpointSlice): void {
    for (const address of endpointAddresses(object)) {
      this.#endpoints.add(address, object);
      if (isLoopback(address)) count(this.#loopback, address, 1);
    }
  }

  deleteEndpoints(object: Endpoints | EndpointSlice): void {
    for (const address of endpointAddresses(object)) {
      this.#endpoints.delete(address, object);
      if (isLoopback(address)) count(this.#loopback, address, -1);
    }
  }

  *referrersOf(address: Address): Generator<Referrer> {
    yield* this.#endpoints.of(address);
    yield* this.#externalIPs.of(address);
  }

  /** Every address of this node that an endpoint or an external IP may have. */
  *onThisNode(): Generator<Address> {
    yield* this.nodeAddresses;
    yield* this.#loopback.keys();
  }

  isThisNode(address: Address): boolean {
    return isLoopback(address) || this.nodeAddresses.has(address);
  }

  /** The Services to which the API server or a controller gave it. */
  withAssigned(address: Address): Iterable<Service> {
    return this.#assigned.of(address);
  }

  withExternalIP(address: Address): Iterable<Service> {
    return this.#externalIPs.of(address);
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
   * Why this endpoint must not be used; `undefined` when it may. A connection to it would come back to the proxy, and
   * open another until descriptors run out; or publish what is for this machine alone.
   */
  loopReason({ address, port }: Endpoint, protocol: ProxiedProtocol): Found | undefined {
    const because = (what: string) => ({ found: `it is ${what}, so connections would come back to the proxy` });
    // Anyone may write an external IP, so it does not count.
    if (this.#isAssigned({ address, port }, protocol)) return because('an address of a Service');
    if (!this.isThisNode(address)) return undefined;
    if (!this.#policy.isMarking && this.#hasNodePort(port, protocol)) return because('a NodePort on this node');
    if (this.proxyPorts[protocol].has(port)) return because("one of the proxy's own ports");
    if (protocol === 'TCP' && isLoopback(address) && this.#policy.httpPorts?.has(port)) {
      return { found: "it is an HTTP port of the proxy's own, which must not become public" };
    }
    return undefined;
  }

  /**
   * Why this endpoint must not be used; `undefined` when it may. The proxy dials it from the node itself, past what the
   * node's firewall says of the interface of its client (docs/adr/0033).
   */
  intrusionReason({ address, port }: Endpoint, isVouchedFor = false): Found | undefined {
    const { nodeEndpointPorts } = this.#policy;
    if (nodeEndpointPorts === undefined || !this.isThisNode(address)) return undefined;
    const isOfKubelet = KUBELET_PORTS.has(port);
    if (isVouchedFor && !isOfKubelet) return undefined;
    if (nodeEndpointPorts.some(({ first, last }) => port >= first && port <= last)) return undefined;
    const what = isOfKubelet ? "the kubelet's port of this node" : "at this node's own address and no Pod";
    const found = `it is ${what}, which its firewall may close to clients`;
    return { found, advice: '--node-endpoint-ports opens it' };
  }

  /**
   * Why this external IP and port must have no rules; `undefined` when they may. Anyone who may write a Service chooses
   * its external IPs (CVE-2020-8554), and rules for them take packets from everywhere (docs/adr/0017). `read`: what
   * earlier calls for the same Service have read of endpoints, as long as nothing changes.
   */
  externalIpRefusal(
    { address, port }: Endpoint,
    protocol: ProxiedProtocol,
    service: ServiceKey,
    read: EndpointPorts = new Map(),
  ): Found | undefined {
    const { allowedExternalIPs, podCidrs = [], isListening, isMarking } = this.#policy;
    const isUnlimited = allowedExternalIPs === undefined;
    if (!isUnlimited && !allowedExternalIPs.some((cidr) => cidrContains(cidr, address))) {
      return { found: 'it is not among the external IPs that are allowed' };
    }
    if (this.#clusterIPs.has(address)) return { found: 'it is the cluster IP of a Service' };
    // Without the mark, rules would also take the proxy's own connections to an endpoint of this Service.
    const isForeign = (key: ServiceKey) => key !== service || !isMarking;
    const taken = read.get(address) ?? this.#endpointPortsAt(address, isForeign);
    read.set(address, taken);
    if (taken.has(`${port}/${protocol}`)) return { found: 'it is an endpoint of a Service' };
    const isApiServer = this.apiServers().some((server) => server.address === address && server.port === port);
    if (isApiServer && protocol === 'TCP') return { found: 'it is the API server' };
    const isHere = this.nodeAddresses.has(address);
    // What an administrator allows is no other node.
    if (KUBELET_PORTS.has(port) && protocol === 'TCP' && (isHere || isUnlimited)) {
      return { found: "that port is the kubelet's on every node" };
    }
    if (!isHere) {
      // Another node may have it, too, and serves the Service there.
      if (this.#isEndpointOfOther(address, service)) {
        return { found: 'an endpoint of another Service has this address, and keeps its connections' };
      }
      const isOfPod = podCidrs.some((cidr) => cidrContains(cidr, address));
      return isOfPod ? { found: 'it is in the range of pod addresses (--cluster-cidr)' } : undefined;
    }
    if (this.#hasNodePort(port, protocol)) return { found: 'that port of this node is the NodePort of a Service' };
    const isTaken = isListening?.(address, port, protocol);
    return isTaken ? { found: 'a program on this node listens on that address and port' } : undefined;
  }

  /**
   * Why this NodePort, or this port of a cluster IP that is an address of this node, must have no rules; `undefined`
   * when they may. Rules would take the clients of a program that listens there. A Service port that has it already
   * keeps it: otherwise whoever can open a socket could take its clients.
   */
  programRefusal(name: ServicePortName, to: PortOfNode, protocol: ProxiedProtocol): Found | undefined {
    const { address, port } = to;
    if (address !== undefined && !this.nodeAddresses.has(address)) return undefined;
    const { httpPorts, isListening, nodePortAddresses, holds } = this.#policy;
    if (protocol === 'TCP' && httpPorts?.has(port)) {
      return { found: "it is an HTTP port of the proxy's own", advice: 'choose another port' };
    }
    // First what is known: who listens, and the addresses, are read from the kernel.
    if (holds?.(name, to, protocol) || !isListening?.(address, port, protocol)) return undefined;
    const addresses = address === undefined ? nodePortAddresses?.() : undefined;
    if (addresses?.every((each) => !isListening(each, port, protocol))) return undefined;
    return { found: 'a program on this node listens on that port', advice: 'stop it, or choose another port' };
  }

  apiServers(): readonly Endpoint[] {
    return this.#policy.apiServers?.() ?? [];
  }

  #isEndpointOfOther(address: Address, service: ServiceKey): boolean {
    for (const object of this.#endpoints.of(address)) if (serviceOf(object) !== service) return true;
    return false;
  }

  #hasNodePort(port: number, protocol: ProxiedProtocol): boolean {
    return this.#nodePorts.has(`${port}/${protocol}`);
  }

  #isAssigned({ address, port }: Endpoint, protocol: ProxiedProtocol): boolean {
    for (const { ports } of this.#assigned.of(address)) {
      if (ports.some((spec) => spec.port === port && spec.protocol === protocol)) return true;
    }
    return false;
  }

  /** `port/protocol` of endpoints at this address, ready or not. */
  #endpointPortsAt(address: Address, isMeant: (key: ServiceKey) => boolean): ReadonlySet<string> {
    const found = new Set<string>();
    for (const object of this.#endpoints.of(address)) {
      if (!isMeant(serviceOf(object))) continue;
      for (const { addresses, ports } of groupsOf(object)) {
        // The one group of a slice has it.
        if (!('group' in object) && !addresses.some((each) => each.address === address)) continue;
        for (const { port, protocol } of ports) found.add(`${port}/${protocol}`);
      }
    }
    return found;
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

/** The addresses that the API server or a controller gave it; some may come twice. */
export function assignedTo({ clusterIPs, loadBalancerIPs }: Service): readonly Address[] {
  return [...clusterIPs, ...loadBalancerIPs];
}

export function serviceOf(referrer: Referrer): ServiceKey {
  return 'service' in referrer ? referrer.service : referrer.key;
}

function groupsOf(object: Endpoints | EndpointSlice): readonly EndpointGroup[] {
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
