import type { Address, IpFamily } from '../../src/model/address.ts';
import { COUNTERS, type Counters } from '../../src/model/data-plane.ts';
import { type Endpoint, endpointName } from '../../src/model/endpoint.ts';
import { type ServiceKey, type ServicePortName, servicePortName } from '../../src/model/service.ts';
import type { ApiServerStatus } from '../../src/model/source.ts';
import {
  type ConnectionView,
  type EndpointView,
  type EventView,
  type Explanation,
  type HistorySample,
  type NodeView,
  type Question,
  SAMPLE_MS,
  type ServiceFilter,
  type ServiceState,
  type ServiceView,
  type View,
} from '../../src/model/view.ts';
import { address } from '../support/model.ts';

export const FAKE_NOW = 1_700_000_000_000;

export interface FakeViewOptions {
  /** Service ports; the first three are default/web:http, kube-system/dns:dns (UDP) and shop/empty. */
  readonly services?: number;
  /** Of each Service port that has any. */
  readonly endpoints?: number;
}

/** Of three, the second is used. */
export const SEVERAL_SERVERS: readonly ApiServerStatus[] = [
  { server: '192.0.2.1:6443', failure: { since: FAKE_NOW - 120_000, err: 'connect ECONNREFUSED' } },
  { server: '192.0.2.2:6443', usedSince: FAKE_NOW - 60_000 },
  { server: '192.0.2.3:6443' },
];

/** All of them are away. */
export const LOST_SERVERS: readonly ApiServerStatus[] = SEVERAL_SERVERS.map((server) => ({
  ...server,
  failure: server.failure ?? { since: FAKE_NOW - 30_000, err: 'no answer to a probe within 10 s' },
}));

/** A view whose every value follows from its options: what operators would be shown of a node that is at rest. */
export class FakeView implements View {
  /** What {@link node} says beside its defaults; tests alter it. */
  nodeChanges: Partial<NodeView> = {};
  /** How many Service ports have been made so far, over all calls of {@link services}. */
  made = 0;
  readonly #services: number;
  readonly #endpoints: number;

  constructor({ services = 3, endpoints = 3 }: FakeViewOptions = {}) {
    this.#services = services;
    this.#endpoints = endpoints;
  }

  async node(): Promise<NodeView> {
    return {
      version: '0.1.0',
      nodeVersion: 'v24.21.0',
      nodeName: 'node-1',
      pid: 4711,
      startedAt: FAKE_NOW - 3_600_000,
      now: FAKE_NOW,
      engine: 'fast',
      workers: 2,
      capture: { method: 'iptables nft', why: 'it works on this node' },
      iptables: 'nft',
      healthy: true,
      families: [
        {
          family: 'IPv4',
          servicePorts: this.#services,
          pending: 0,
          lastSync: { at: FAKE_NOW - 4_000, durationMs: 12 },
          lastSyncedAt: FAKE_NOW - 4_000,
        },
      ],
      source: 'the API server 192.0.2.1:6443',
      api: { connected: true, staleForMs: 0, servers: [{ server: '192.0.2.1:6443', usedSince: FAKE_NOW - 60_000 }] },
      loopDelayMs: { p50: 0.1, p99: 1.2, max: 4.5 },
      memory: { rss: 90_000_000, heapUsed: 30_000_000 },
      descriptors: { open: 120, limit: 1_048_576 },
      totals: counters(1_000 * this.#services),
      rates: { connections: 120.4, receivedBytes: 1_500_000, sentBytes: 25_000_000, failures: 0.2 },
      verbosity: 0,
      drained: [],
      weights: [],
      ...this.nodeChanges,
    };
  }

  *services(filter: ServiceFilter = {}): Iterable<ServiceView> {
    for (let index = 0; index < this.#services; index++) {
      const [namespace, service] = nameOf(index);
      if (filter.namespace !== undefined && filter.namespace !== namespace) continue;
      if (filter.service !== undefined && filter.service !== service) continue;
      this.made++;
      yield serviceView(index, this.#endpoints, filter.summary);
    }
  }

  service(name: ServicePortName, _family: IpFamily, { summary }: ServiceFilter = {}): ServiceView | undefined {
    for (let index = 0; index < this.#services; index++) {
      const [namespace, service, portName] = nameOf(index);
      if (servicePortName(`${namespace}/${service}`, portName) === name) {
        return serviceView(index, this.#endpoints, summary);
      }
    }
    return undefined;
  }

  async *connections(filter?: ServiceFilter): AsyncIterable<readonly ConnectionView[]> {
    for (const { name, protocol, clusterIPs, port, listeners } of this.services(filter)) {
      const [first] = listeners[0]?.endpoints ?? [];
      if (first === undefined) continue;
      yield [40_000, 40_001].map((clientPort) => ({
        name,
        protocol,
        client: { address: address('10.244.1.20'), port: clientPort },
        virtual: { address: clusterIPs[0] as Address, port },
        endpoint: first.endpoint,
        ...(protocol === 'TCP' ? { state: 'established' } : { state: 'flow', expiresMs: 250 }),
      }));
    }
  }

  events(): readonly EventView[] {
    return [
      { id: 1, at: FAKE_NOW - 3_600_000, level: 'info', message: 'Started', fields: { version: '0.1.0' } },
      {
        id: 2,
        at: FAKE_NOW - 60_000,
        level: 'warn',
        message: 'An endpoint refused the connection: nothing listens there; check the pod and the target port',
        fields: { svc: 'default/web:http', backend: '10.244.0.2:8080' },
      },
    ];
  }

  history(): readonly HistorySample[] {
    return Array.from({ length: 180 }, (_, index) => ({
      at: FAKE_NOW - (180 - index) * SAMPLE_MS,
      active: 40 + (index % 7),
      connections: 100 + 50 * Math.sin(index / 10),
      receivedBytes: 1_500_000,
      sentBytes: 25_000_000,
      failures: index % 60 === 0 ? 1 : 0,
    }));
  }

  async explain(question: Question): Promise<Explanation> {
    const where = endpointName(question);
    for (const service of this.services()) {
      if (!service.clusterIPs.includes(question.address) || service.port !== question.port) continue;
      const [listener] = service.listeners;
      const endpoints = listener?.endpoints ?? [];
      const [next] = endpoints;
      return {
        summary:
          next === undefined
            ? `${service.name} has no endpoint, so clients are refused`
            : `${service.name} takes it; the next connection goes to ${endpointName(next.endpoint)}`,
        served: next !== undefined,
        rules: [
          {
            table: 'nat',
            chain: 'KUBE-PORTALS-HOST',
            line: '-t nat -A KUBE-PORTALS-HOST -j DNAT',
            rule: `-d ${question.address}/32 -p tcp -m comment --comment "${service.name}" -m tcp --dport ${question.port} -j DNAT`,
          },
        ],
        service,
        ...(listener !== undefined && { listener }),
        candidates: endpoints.map(({ endpoint }) => ({
          ...{ endpoint, weight: 1 },
          ...{ nodeName: 'node-1', chosen: true, active: 2 },
        })),
        ...(next !== undefined && { nextPick: next.endpoint }),
      };
    }
    return { summary: `no Service has ${where}`, served: false, rules: [], candidates: [] };
  }
}

/** With `value` new connections, and what goes with so many. */
export function counters(value: number): Counters {
  const none = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
  return {
    ...none,
    connections: value,
    active: value % 17,
    receivedBytes: value * 1_000,
    sentBytes: value * 20_000,
    connects: value,
    connectMs: value * 2,
  };
}

const FIRST: readonly (readonly [namespace: string, service: string, portName: string])[] = [
  ['default', 'web', 'http'],
  ['kube-system', 'dns', 'dns'],
  ['shop', 'empty', ''],
];

function nameOf(index: number): readonly [namespace: string, service: string, portName: string] {
  return (
    FIRST[index] ?? [`team-${String(index % 20).padStart(2, '0')}`, `svc-${String(index).padStart(5, '0')}`, 'http']
  );
}

const STATES: ReadonlyMap<number, readonly [state: ServiceState, reason: string]> = new Map([
  [2, ['empty', 'no endpoint is ready']],
  [50, ['degraded', 'dials to 10.244.0.2:8080 failed']],
]);

function serviceView(index: number, endpoints: number, isSummary = false): ServiceView {
  const [namespace, service, portName] = nameOf(index);
  const key: ServiceKey = `${namespace}/${service}`;
  const [state, reason] = STATES.get(index) ?? ['ok'];
  const count = state === 'empty' ? 0 : endpoints;
  return {
    name: servicePortName(key, portName),
    namespace,
    service,
    portName,
    family: 'IPv4',
    protocol: index === 1 ? 'UDP' : 'TCP',
    port: index === 1 ? 53 : 80,
    nodePort: index === 0 ? 30_080 : 0,
    clusterIPs: [address(`10.96.${index >> 8}.${index & 255}`)],
    externalIPs: [],
    loadBalancerIPs: index === 0 ? [address('192.0.2.10')] : [],
    affinity: index === 1 ? { type: 'ClientIP', timeoutSeconds: 10_800 } : { type: 'None' },
    scheduler: 'rr',
    state,
    ...(reason !== undefined && { reason }),
    counters: counters(1_000 + index),
    ...(index !== 1 && { connectTime: { p50: 0.5, p99: 16, count: 1_000 } }),
    rates: {
      connections: index % 10,
      receivedBytes: index * 10,
      sentBytes: index * 200,
      failures: state === 'ok' ? 0 : 1,
    },
    listeners: [
      {
        set: 'own',
        localPort: 30_000 + index,
        worker: index % 2,
        traffic: ['internal', 'external'],
        endpoints: Array.from({ length: isSummary ? 0 : count }, (_, number) => endpointView(index, number)),
        endpointCount: { all: count, active: count },
      },
    ],
  };
}

/** The same pods for every hundredth Service, so that an endpoint may belong to several. */
function endpointView(service: number, number: number): EndpointView {
  const endpoint: Endpoint = {
    address: address(`10.244.${service % 100}.${number + 1}`),
    port: service === 1 ? 53 : 8080,
  };
  return {
    endpoint,
    state: 'active',
    weight: 1,
    counters: counters(100 + number),
    ...(service !== 1 && { connectTime: { p50: 0.5, p99: 16, count: 100 } }),
  };
}
