import type { IpFamily } from '../model/address.ts';
import type { ServiceKey } from '../model/service.ts';
import type { HealthCheck } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { type HttpResponse, HttpServer, JSON_TYPE } from './http-server.ts';

interface HealthCheckNodePortsOptions {
  /** The rules keep up; the node itself does not count here (upstream `pkg/proxy/healthcheck/service_health.go`). */
  readonly proxyHealthy: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** `undefined` stands for every address of the machine. */
const EVERYWHERE: readonly (string | undefined)[] = [undefined];

interface Check {
  state: HealthCheck;
  /** By address. */
  readonly servers: Map<string | undefined, HttpServer>;
}

/**
 * Answers the health checks of load balancers, on one port for each Service that wants it (type LoadBalancer,
 * `externalTrafficPolicy: Local`): whether this node has endpoints of the Service. Level-triggered: the servers are
 * always those of the last state. A taken port is retried, and the others are served.
 */
export class HealthCheckNodePorts {
  readonly #options: HealthCheckNodePortsOptions;
  readonly #byFamily = new Map<ServiceKey, Map<IpFamily, HealthCheck>>();
  readonly #checks = new Map<ServiceKey, Check>();
  #addresses = EVERYWHERE;
  #isPaused = false;

  constructor(options: HealthCheckNodePortsOptions) {
    this.#options = options;
  }

  /** The addresses of this machine that serve NodePorts; `undefined` for all, the initial state. */
  listenOn(addresses: readonly string[] | undefined): void {
    this.#addresses = addresses ?? EVERYWHERE;
    this.#reconcile();
  }

  /** Combines both address families of a Service. They have the same pods, so the larger number counts. */
  apply(family: IpFamily, changes: ReadonlyMap<ServiceKey, HealthCheck | undefined>): void {
    for (const [service, check] of changes) {
      const checks = this.#byFamily.get(service) ?? new Map<IpFamily, HealthCheck>();
      if (check === undefined) checks.delete(family);
      else checks.set(family, check);
      if (checks.size === 0) this.#byFamily.delete(service);
      else this.#byFamily.set(service, checks);
      const [best] = [...checks.values()].sort((a, b) => b.localEndpoints - a.localEndpoints);
      this.update(service, best);
    }
  }

  /** `undefined`: the Service is gone, or needs no health check any more. */
  update(service: ServiceKey, state: HealthCheck | undefined): void {
    const check = this.#checks.get(service);
    if (check !== undefined && check.state.port !== state?.port) closeAll(check);
    if (state === undefined) this.#checks.delete(service);
    else if (check === undefined) this.#checks.set(service, { state, servers: new Map() });
    else check.state = state;
    this.#reconcile([service]);
  }

  /** Every port is free when this returns, and stays so until {@link resume}. */
  pause(): void {
    this.#isPaused = true;
    for (const check of this.#checks.values()) closeAll(check);
  }

  resume(): void {
    this.#isPaused = false;
    this.#reconcile();
  }

  #reconcile(services: Iterable<ServiceKey> = this.#checks.keys()): void {
    if (this.#isPaused) return;
    for (const service of services) {
      const check = this.#checks.get(service);
      if (check === undefined) continue;
      closeAll(check, (address) => !this.#addresses.includes(address));
      for (const address of this.#addresses) {
        if (check.servers.has(address)) continue;
        const server = this.#server(service, check, address);
        check.servers.set(address, server);
        server.start();
      }
    }
  }

  #server(service: ServiceKey, check: Check, address: string | undefined): HttpServer {
    const { proxyHealthy, clock, log } = this.#options;
    return new HttpServer({
      name: `health check of ${service}`,
      place: { address, port: check.state.port },
      hint: 'load balancers take this node for unhealthy until whatever has the port ends',
      audience: 'anybody',
      // On every path, as upstream's.
      routes: { get: () => () => answer(service, check.state.localEndpoints, proxyHealthy()) },
      clock,
      log,
    });
  }
}

function closeAll({ servers }: Check, isChosen = (_address: string | undefined) => true): void {
  for (const [address, server] of servers) {
    if (!isChosen(address)) continue;
    servers.delete(address);
    void server.close();
  }
}

/** The body is upstream's to the byte; the header lets load balancers weigh nodes. */
function answer(service: ServiceKey, localEndpoints: number, serviceProxyHealthy: boolean): HttpResponse {
  const [namespace, name] = service.split('/');
  return {
    status: localEndpoints > 0 && serviceProxyHealthy ? 200 : 503,
    contentType: JSON_TYPE,
    headers: { 'X-Load-Balancing-Endpoint-Weight': `${localEndpoints}` },
    body: JSON.stringify({ service: { namespace, name }, localEndpoints, serviceProxyHealthy }, null, '\t'),
  };
}
