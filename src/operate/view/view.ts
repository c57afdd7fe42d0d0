import { claimName } from '../../capture/claims.ts';
import { type Address, type IpFamily, WILDCARDS } from '../../model/address.ts';
import type { Conflict } from '../../model/capture.ts';
import type { DataPlane, ListenerStats } from '../../model/data-plane.ts';
import { type Endpoint, type WeightedEndpoint, withoutName } from '../../model/endpoint.ts';
import { goesWithout } from '../../model/finding.ts';
import type { SchedulerName } from '../../model/scheduler.ts';
import { partsOf, type ServicePortName } from '../../model/service.ts';
import {
  type CarriedPort,
  clientSets,
  type EndpointSet,
  type EndpointSetName,
  heldBy,
  type ListenerId,
  type RefusedPart,
  type ServicePort,
  whyNotOpen,
} from '../../model/service-port.ts';
import {
  type ConnectionView,
  type EndpointState,
  type EndpointView,
  type EventView,
  type Explanation,
  isWell,
  type ListenerView,
  type NodeView,
  type Question,
  type Rates,
  type ServiceFilter,
  type ServiceView,
  type Traffic,
  type View,
} from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { formatDuration } from '../../util/duration.ts';
import { foundText } from '../../util/found.ts';
import { counted } from '../../util/text.ts';
import type { DialErrors } from '../log/dial-errors.ts';
import { connectTime, type Histogram, sumOf } from './connect-times.ts';
import { addRates, addTo, NO_RATES, noCounters, type TrafficSampler } from './traffic.ts';

/* What operators see, read from the running program: the implementation of model/view.ts. */

/** What one address family carries. */
interface CarriedPorts {
  readonly family: IpFamily;
  names(): Iterable<ServicePortName>;
  carried(name: ServicePortName): CarriedPort | undefined;
  /** Why no endpoint of its own set may serve. */
  whyEmpty(name: ServicePortName): string | undefined;
  /** What it claims and another Service port has. */
  conflictsOf(name: ServicePortName): readonly Conflict[];
  /** What it goes without for another reason. */
  refusedOf(name: ServicePortName): readonly Pick<RefusedPart, 'what' | 'found' | 'advice'>[];
}

export interface ViewSources {
  /** The families that are served now, IPv4 first. */
  readonly families: () => readonly CarriedPorts[];
  readonly dataPlane: Pick<DataPlane, 'statsOf' | 'connections'>;
  readonly sampler: Pick<TrafficSampler, 'ratesOf' | 'problemOf' | 'history' | 'connectTimes'>;
  readonly dialErrors: Pick<DialErrors, 'last'>;
  /** Whether an operator has drained it. */
  readonly isDrained: (endpoint: Endpoint) => boolean;
  /** Of Services that ask for none. */
  readonly scheduler: SchedulerName;
  readonly log: { readonly events: readonly EventView[] };
  readonly node: () => Promise<NodeView>;
  readonly explain: (question: Question) => Promise<Explanation>;
}

const DIAL_FAILURES = ['failedRefused', 'failedTimeout', 'failedUnreachable'] as const;

/** Idle listeners looked at in one turn: each may have a hundred endpoints with counters. */
const IDLE_AT_ONCE = 16;

export class RunningView implements View {
  readonly #sources: ViewSources;

  constructor(sources: ViewSources) {
    this.#sources = sources;
  }

  node(): Promise<NodeView> {
    return this.#sources.node();
  }

  explain(question: Question): Promise<Explanation> {
    return this.#sources.explain(question);
  }

  events() {
    return this.#sources.log.events;
  }

  history() {
    return this.#sources.sampler.history;
  }

  *services(filter: ServiceFilter = {}): Iterable<ServiceView> {
    const families = this.#sources.families();
    const names = new Set(families.flatMap((family) => [...family.names()].filter((name) => matches(name, filter))));
    for (const name of [...names].sort()) {
      for (const { family } of families) {
        const view = this.service(name, family, filter);
        if (view !== undefined) yield view;
      }
    }
  }

  service(
    name: ServicePortName,
    ofFamily: IpFamily,
    { summary = false }: Pick<ServiceFilter, 'summary'> = {},
  ): ServiceView | undefined {
    const { families, dataPlane, sampler, isDrained, scheduler } = this.#sources;
    const pipeline = families().find(({ family }) => family === ofFamily);
    const port = pipeline?.carried(name);
    if (port === undefined) return undefined;
    const { servicePort } = port;
    const counters = noCounters();
    let rates: Rates | undefined;
    const problem = sampler.problemOf(port.listeners.map(({ id }) => id));
    let isDown = false;
    const histograms: Histogram[] = [];
    const listeners = port.listeners.map(({ id, set, localPort }): ListenerView => {
      const stats = dataPlane.statsOf(id);
      if (stats !== undefined) {
        addTo(counters, stats.counters);
        histograms.push(sampler.connectTimes.since(id, stats.counters));
      }
      const own = sampler.ratesOf(id);
      if (own !== undefined) rates = addRates(rates ?? NO_RATES, own);
      const endpoints = set === 'local' && servicePort.local !== undefined ? servicePort.local : servicePort;
      const active = endpoints.endpoints.length;
      const failed = stats !== undefined && DIAL_FAILURES.some((counter) => stats.counters[counter] > 0);
      const viewed = summary && !failed ? [] : this.#endpoints(name, endpoints, stats, id);
      // One-way UDP is never answered, so an old failure says nothing.
      const isCurrent = servicePort.protocol === 'TCP' || problem !== undefined;
      if (failed) isDown ||= active > 0 && !viewed.some(isWell) && isCurrent;
      return {
        set,
        localPort,
        ...(stats?.worker !== undefined && { worker: stats.worker }),
        traffic: trafficOf(set, servicePort),
        endpoints: summary ? [] : viewed,
        endpointCount: { all: active + (endpoints.draining?.length ?? 0), active },
      };
    });
    const took = connectTime(sumOf(histograms));
    const draining = [...(servicePort.draining ?? []), ...(servicePort.local?.draining ?? [])];
    const { protocol, port: number, nodePort, clusterIPs, externalIPs, loadBalancerIPs } = servicePort;
    const { affinity, options, waitMs } = servicePort;
    const conflicts = pipeline?.conflictsOf(name) ?? [];
    const isLost = (to: { readonly address?: Address; readonly port: number }) =>
      conflicts.some(({ what }) => what === claimName(to, protocol));
    const served = (addresses: readonly Address[]) =>
      conflicts.length === 0 ? addresses : addresses.filter((address) => !isLost({ address, port: number }));
    return {
      name,
      ...partsOf(name),
      family: ofFamily,
      protocol,
      port: number,
      nodePort: isLost({ port: nodePort }) ? 0 : nodePort,
      clusterIPs: served(clusterIPs),
      externalIPs: served(externalIPs),
      loadBalancerIPs: served(loadBalancerIPs),
      affinity,
      scheduler: options?.scheduler ?? scheduler,
      ...(options?.slowStartMs !== undefined && { slowStartMs: options.slowStartMs }),
      ...(waitMs !== undefined && { waitMs }),
      ...(options?.maxConnections !== undefined && { maxConnections: options.maxConnections }),
      ...stateOf(servicePort, {
        isDown,
        notOpen: whyNotOpen(port),
        problem,
        ejected: counters.ejected,
        waiting: counters.waiting,
        isDrained: draining.some(isDrained),
        whyEmpty: () => pipeline?.whyEmpty(name),
        missing: [
          ...conflicts.map(({ what, holder }) => ({ what, ...heldBy(holder) })),
          ...(pipeline?.refusedOf(name) ?? []),
        ],
      }),
      counters,
      listeners,
      ...(rates && { rates }),
      ...(took && { connectTime: took }),
    };
  }

  async *connections(filter: ServiceFilter = {}): AsyncIterable<readonly ConnectionView[]> {
    const { families, dataPlane } = this.#sources;
    const ports = families().flatMap((pipeline) =>
      [...pipeline.names()]
        .filter((name) => matches(name, filter))
        .flatMap((name) => pipeline.carried(name) ?? [])
        .map((carried) => ({ family: pipeline.family, ...carried })),
    );
    let idle = 0;
    for (const { family, servicePort, listeners } of ports) {
      const { name, protocol } = servicePort;
      const virtual = virtualOf(servicePort, family);
      for (const { id } of listeners) {
        // Most have no connections, and a counter is quicker than a question to a worker.
        const { active = 0, waiting = 0 } = dataPlane.statsOf(id)?.counters ?? {};
        if (active + waiting === 0) {
          idle++;
          // At an empty piece, the consumer can give way to other work.
          if (idle % IDLE_AT_ONCE === 0) yield [];
          continue;
        }
        for await (const piece of dataPlane.connections(id)) {
          yield piece.map(({ endpoint, ...rest }) => {
            return {
              name,
              protocol,
              virtual,
              ...rest,
              ...(endpoint !== undefined && { endpoint: withoutName(endpoint) }),
            };
          });
        }
      }
    }
  }

  #endpoints(
    name: ServicePortName,
    { endpoints, draining = [] }: EndpointSet,
    stats: ListenerStats | undefined,
    id: ListenerId,
  ): EndpointView[] {
    const { dialErrors, isDrained, sampler } = this.#sources;
    const counted = new Map(stats?.endpoints?.map((each) => [each.endpoint.name, each.counters]));
    const view = (endpoint: WeightedEndpoint, drainState?: EndpointState): EndpointView => {
      const counters = counted.get(endpoint.name);
      const error = dialErrors.last(name, endpoint.name);
      const took = counters && connectTime(sampler.connectTimes.since(id, counters, endpoint));
      const usedState = counters?.ejected ? 'ejected' : error?.isLatest ? 'failing' : 'active';
      return {
        endpoint: withoutName(endpoint),
        state: drainState ?? usedState,
        weight: drainState === undefined ? (endpoint.weight ?? 1) : 0,
        ...(counters && { counters }),
        ...(took && { connectTime: took }),
        ...(error && { lastError: { at: error.at, err: error.err } }),
      };
    };
    return [
      ...endpoints.map((endpoint) => view(endpoint)),
      ...draining.map((endpoint) => view(endpoint, isDrained(endpoint) ? 'drained' : 'draining')),
    ];
  }
}

function matches(name: ServicePortName, { namespace, service }: ServiceFilter): boolean {
  if (namespace === undefined && service === undefined) return true;
  const parts = partsOf(name);
  return [undefined, parts.namespace].includes(namespace) && [undefined, parts.service].includes(service);
}

/** Which connections come to this set's listener (docs/adr/0009). */
function trafficOf(set: EndpointSetName, servicePort: ServicePort): Traffic[] {
  const { internal, external } = clientSets(servicePort);
  const isNodeApart = external.node !== external.others;
  return [
    ...(internal.others === set ? ['internal' as const] : []),
    ...(external.others === set ? ['external' as const] : []),
    ...(isNodeApart && external.node === set ? ['node' as const] : []),
  ];
}

interface Facts {
  /** No endpoint of one of its sets answers. */
  readonly isDown: boolean;
  readonly notOpen: string | undefined;
  readonly problem: string | undefined;
  readonly ejected: number;
  /** Clients that wait now. */
  readonly waiting: number;
  readonly isDrained: boolean;
  readonly whyEmpty: () => string | undefined;
  /** What it goes without. */
  readonly missing: readonly Pick<RefusedPart, 'what' | 'found' | 'advice'>[];
}

function stateOf(port: ServicePort, facts: Facts): Pick<ServiceView, 'state' | 'reason'> {
  const { isDown, notOpen, problem, ejected, waiting, isDrained, missing } = facts;
  if (notOpen !== undefined) return { state: 'pending', reason: notOpen };
  if (port.endpoints.length === 0) return stateWithoutEndpoints(port, facts);
  if (isDown) return { state: 'down', reason: 'no endpoint has answered since its last failure' };
  if (waiting > 0) {
    const { maxConnections } = port.options ?? {};
    const which = maxConnections === undefined ? '' : ` that has fewer than ${counted(maxConnections, 'connection')}`;
    return { state: 'waiting', reason: `${waitText(waiting)} for an endpoint${which}` };
  }
  if (missing.length > 0) return { state: 'degraded', reason: `it ${foundText(goesWithout(missing))}` };
  if (problem !== undefined) return { state: 'degraded', reason: problem };
  if (ejected > 0) return { state: 'degraded', reason: whyEjected(port) };
  return isDrained ? { state: 'degraded', reason: 'endpoints are drained' } : { state: 'ok' };
}

function stateWithoutEndpoints(
  { onlyElsewhere, waitMs }: ServicePort,
  { waiting, isDrained, whyEmpty }: Facts,
): Pick<ServiceView, 'state' | 'reason'> {
  const found = isDrained ? 'its endpoints are drained' : (whyEmpty() ?? 'no endpoint is ready');
  const why = onlyElsewhere ? 'no endpoint on this node may serve, and its policy is Local' : found;
  if (waiting > 0) return { state: 'waiting', reason: `${why}; ${waitText(waiting)}` };
  if (waitMs === undefined) return { state: 'empty', reason: why };
  return { state: 'idle', reason: `${why}; clients wait up to ${formatDuration(waitMs)} for one` };
}

/** "1 client waits", "2 clients wait" */
function waitText(waiting: number): string {
  return `${counted(waiting, 'client')} ${waiting === 1 ? 'waits' : 'wait'}`;
}

function whyEjected({ endpoints }: EndpointSet): string {
  return endpoints.some(({ isDoubtful }) => isDoubtful)
    ? 'endpoints of an earlier boot of this node are tried last until they answer'
    : 'endpoints are ejected because they failed too often in a row';
}

/** Where its clients connect to: most of them, if there are several such addresses. */
function virtualOf(
  { clusterIPs, externalIPs, loadBalancerIPs, port, nodePort }: ServicePort,
  family: IpFamily,
): Endpoint {
  const [address] = [...clusterIPs, ...externalIPs, ...loadBalancerIPs];
  return address === undefined ? { address: WILDCARDS[family], port: nodePort } : { address, port };
}

/** Of one piece: few enough that other work of the event loop waits no longer than {@link SLICE_MS} and a row. */
const MAX_ROWS = 100;
const MAX_CHARACTERS = 64 * 1024;
const SLICE_MS = 2;

/**
 * Makes rows as text, piece by piece, when the consumer reads them. Ten thousand Services with all their endpoints are
 * many megabytes, too much for one turn of the event loop. The consumer gives way to other work between two pieces.
 */
export function* inPieces<Row>(
  rows: Iterable<Row>,
  clock: Clock,
  textOf: (row: Row) => string,
): Generator<readonly string[]> {
  let texts: string[] = [];
  let characters = 0;
  let endMs = clock.now() + SLICE_MS;
  for (const row of rows) {
    const text = textOf(row);
    texts.push(text);
    characters += text.length;
    if (texts.length < MAX_ROWS && characters < MAX_CHARACTERS && clock.now() < endMs) continue;
    yield texts;
    texts = [];
    characters = 0;
    endMs = clock.now() + SLICE_MS;
  }
  if (texts.length > 0) yield texts;
}
