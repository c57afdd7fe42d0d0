import type { ServiceKey } from '../model/service.ts';
import type { HealthCheck } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { type Handler, type HttpResponse, JSON_TYPE } from './http.ts';
import { HttpServer } from './http-server.ts';

export interface HealthCheckNodePortsOptions {
  /** The rules follow; the node itself does not count here (upstream `pkg/proxy/healthcheck/service_health.go`). */
  readonly proxyHealthy: () => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** Load balancers probe from a few places, each with a connection or two. */
const MAX_CONNECTIONS = 64;

/** What is listened on: `undefined` stands for every address of the machine. */
const EVERYWHERE: readonly (string | undefined)[] = [undefined];

interface Check {
  state: HealthCheck;
  /** By address. */
  readonly servers: Map<string | undefined, HttpServer>;
}

/**
 * Answers the health checks of load balancers, on one port for each Service that asks for it (type LoadBalancer,
 * `externalTrafficPolicy: Local`): whether this node has endpoints of it. Level-triggered: whatever comes in which order, servers are those of the last state. A port that is
 * taken is tried for again, and keeps no other from being served.
 */
export class HealthCheckNodePorts {
  readonly #options: HealthCheckNodePortsOptions;
  readonly #checks = new Map<ServiceKey, Check>();
  #addresses = EVERYWHERE;
  #isPaused = false;

  constructor(options: HealthCheckNodePortsOptions) {
    this.#options = options;
  }

  /** The addresses of this machine that serve NodePorts; `undefined` for all, which is where it begins. */
  listenOn(addresses: readonly string[] | undefined): void {
    this.#addresses = addresses ?? EVERYWHERE;
    for (const [service, check] of this.#checks) this.#reconcile(service, check);
  }

  /** `undefined`: the Service is gone, or needs no health check any more. */
  update(service: ServiceKey, state: HealthCheck | undefined): void {
    const check = this.#checks.get(service);
    if (state === undefined) {
      if (check === undefined) return;
      this.#checks.delete(service);
      closeAll(check);
    } else if (check === undefined) {
      const added: Check = { state, servers: new Map() };
      this.#checks.set(service, added);
      this.#reconcile(service, added);
    } else {
      if (check.state.port !== state.port) closeAll(check);
      check.state = state;
      this.#reconcile(service, check);
    }
  }

  /** Every port is free when this returns, and stays so until {@link resume}. */
  pause(): void {
    this.#isPaused = true;
    for (const check of this.#checks.values()) closeAll(check);
  }

  resume(): void {
    this.#isPaused = false;
    for (const [service, check] of this.#checks) this.#reconcile(service, check);
  }

  #reconcile(service: ServiceKey, check: Check): void {
    if (this.#isPaused) return;
    for (const [address, server] of check.servers) {
      if (this.#addresses.includes(address)) continue;
      check.servers.delete(address);
      void server.close();
    }
    for (const address of this.#addresses) {
      if (check.servers.has(address)) continue;
      const server = this.#server(service, check, address);
      check.servers.set(address, server);
      server.start();
    }
  }

  #server(service: ServiceKey, check: Check, address: string | undefined): HttpServer {
    const { proxyHealthy, clock, log } = this.#options;
    // On every path, as upstream's.
    const handler: Handler = () => answer(service, check.state.localEndpoints, proxyHealthy());
    return new HttpServer({
      name: `health check of ${service}`,
      address,
      port: check.state.port,
      hint: 'load balancers take this node for unhealthy until whatever has the port ends',
      maxConnections: MAX_CONNECTIONS,
      audience: 'anybody',
      routes: { get: () => handler },
      clock,
      log,
    });
  }
}

function closeAll(check: Check): void {
  for (const server of check.servers.values()) void server.close();
  check.servers.clear();
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
