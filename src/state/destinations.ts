import type { Address } from '../model/address.ts';
import type { Service } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { AddressIndex } from './address-index.ts';

/** Where Services are reached. Several may claim the same. */
export class Destinations {
  readonly #claims = new AddressIndex<Service>();
  /** How many claim a NodePort, by `port/protocol`. */
  readonly #nodePorts = new Map<string, number>();

  add(service: Service): void {
    for (const address of addressesOf(service)) this.#claims.add(address, service);
    this.#countNodePorts(service, 1);
  }

  /** Takes back what {@link add} was given. */
  delete(service: Service): void {
    for (const address of addressesOf(service)) this.#claims.delete(address, service);
    this.#countNodePorts(service, -1);
  }

  /** As the cluster IP or load balancer IP of a Service. Those are assigned, where anyone may write an external IP. */
  hasAssigned(address: Address, port: number, protocol: ProxiedProtocol): boolean {
    return this.#has(address, (service) => isAssigned(service, address) && hasPort(service, port, protocol));
  }

  hasExternal(address: Address, port: number, protocol: ProxiedProtocol): boolean {
    return this.#has(address, (service) => service.externalIPs.includes(address) && hasPort(service, port, protocol));
  }

  hasClusterIP(address: Address): boolean {
    return this.#has(address, ({ clusterIPs }) => clusterIPs.includes(address));
  }

  hasNodePort(port: number, protocol: ProxiedProtocol): boolean {
    return this.#nodePorts.has(`${port}/${protocol}`);
  }

  #has(address: Address, isMeant: (service: Service) => boolean): boolean {
    for (const service of this.#claims.of(address)) if (isMeant(service)) return true;
    return false;
  }

  #countNodePorts({ ports }: Service, by: 1 | -1): void {
    for (const { nodePort, protocol } of ports) {
      if (nodePort === 0) continue;
      const key = `${nodePort}/${protocol}`;
      const count = (this.#nodePorts.get(key) ?? 0) + by;
      if (count === 0) this.#nodePorts.delete(key);
      else this.#nodePorts.set(key, count);
    }
  }
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
