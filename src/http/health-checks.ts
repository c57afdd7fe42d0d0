import type { IpFamily } from '../model/address.ts';
import type { ServiceKey } from '../model/service.ts';
import type { HealthCheck } from '../model/service-port.ts';
import type { HealthCheckNodePorts } from './health-check-node-ports.ts';

/** Joins what both address families say of a Service. Their pods are the same pods, so the numbers do not add up. */
export class HealthChecks {
  readonly #servers: Pick<HealthCheckNodePorts, 'update'>;
  readonly #checks = new Map<ServiceKey, Map<IpFamily, HealthCheck>>();

  constructor(servers: Pick<HealthCheckNodePorts, 'update'>) {
    this.#servers = servers;
  }

  update(family: IpFamily, changes: ReadonlyMap<ServiceKey, HealthCheck | undefined>): void {
    for (const [service, check] of changes) {
      const checks = this.#checks.get(service) ?? new Map<IpFamily, HealthCheck>();
      if (check === undefined) checks.delete(family);
      else checks.set(family, check);
      if (checks.size === 0) this.#checks.delete(service);
      else this.#checks.set(service, checks);
      const [best] = [...checks.values()].sort((a, b) => b.localEndpoints - a.localEndpoints);
      this.#servers.update(service, best);
    }
  }
}
