import type { Address } from '../model/address.ts';
import type { Protocol, Service } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { AddressIndex } from './address-index.ts';

/** A port of every node that a Service needs: a NodePort, or one where its health is asked. */
export interface NodePort {
  readonly port: number;
  readonly protocol: Protocol;
}

/** Where Services are reached. Several may claim the same. */
export class Destinations {
  readonly #claims = new AddressIndex<Service>();
  /** How many claim a NodePort, by `port/protocol`. */
  readonly #nodePorts = new Map<string, number>();
  /** The same of health check node ports, by port. */
  readonly #healthCheckPorts = new Map<number, number>();
  #newPorts: NodePort[] = [];

  add(service: Service): void {
    for (const address of addressesOf(service)) this.#claims.add(address, service);
    this.#countNodePorts(service, 1);
    this.#countHealthCheckPort(service, 1);
  }

  /** Takes back what {@link add} was given. */
  delete(service: Service): void {
    for (const address of addressesOf(service)) this.#claims.delete(address, service);
    this.#countNodePorts(service, -1);
    this.#countHealthCheckPort(service, -1);
  }

  /** As the cluster IP or load balancer IP of a Service. Those are assigned, where anyone may write an external IP. */
  hasAssigned(address: Address, port: number, protocol: ProxiedProtocol): boolean {
    return this.#has(address, (service) => isAssigned(service, address) && hasPort(service, port, protocol));
  }

  /** The Services that name it as an external IP. */
  *withExternal(address: Address): Generator<Service> {
    for (const service of this.#claims.of(address)) if (service.externalIPs.includes(address)) yield service;
  }

  hasClusterIP(address: Address): boolean {
    return this.#has(address, ({ clusterIPs }) => clusterIPs.includes(address));
  }

  hasNodePort(port: number, protocol: ProxiedProtocol): boolean {
    return this.#nodePorts.has(`${port}/${protocol}`);
  }

  /** Some Service needs this port of the node. */
  needsPort(port: number, protocol: ProxiedProtocol): boolean {
    return this.hasNodePort(port, protocol) || (protocol === 'TCP' && this.#healthCheckPorts.has(port));
  }

  /** The ports that Services have come to need since the last call. */
  takeNewPorts(): readonly NodePort[] {
    const ports = this.#newPorts;
    if (ports.length > 0) this.#newPorts = [];
    return ports;
  }

  #has(address: Address, isMeant: (service: Service) => boolean): boolean {
    for (const service of this.#claims.of(address)) if (isMeant(service)) return true;
    return false;
  }

  #countNodePorts({ ports }: Service, by: 1 | -1): void {
    for (const { nodePort, protocol } of ports) {
      if (nodePort === 0) continue;
      if (count(this.#nodePorts, `${nodePort}/${protocol}`, by)) this.#newPorts.push({ port: nodePort, protocol });
    }
  }

  #countHealthCheckPort({ healthCheckNodePort: port }: Service, by: 1 | -1): void {
    if (port !== undefined && count(this.#healthCheckPorts, port, by)) this.#newPorts.push({ port, protocol: 'TCP' });
  }
}

/** Whether it is the first. */
function count<K>(counts: Map<K, number>, key: K, by: 1 | -1): boolean {
  const before = counts.get(key) ?? 0;
  if (before + by === 0) counts.delete(key);
  else counts.set(key, before + by);
  return before === 0;
}

/** Some of them twice, if a Service has them in two places. */
export function addressesOf({
  clusterIPs,
  loadBalancerIPs,
  externalIPs,
}: Pick<Service, 'clusterIPs' | 'loadBalancerIPs' | 'externalIPs'>): readonly Address[] {
  return [...clusterIPs, ...loadBalancerIPs, ...externalIPs];
}

function isAssigned({ clusterIPs, loadBalancerIPs }: Service, address: Address): boolean {
  return clusterIPs.includes(address) || loadBalancerIPs.includes(address);
}

function hasPort({ ports }: Service, port: number, protocol: ProxiedProtocol): boolean {
  return ports.some((spec) => spec.port === port && spec.protocol === protocol);
}
