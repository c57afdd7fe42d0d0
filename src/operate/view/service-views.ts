import type { IpFamily } from '../../model/address.ts';
import type { DataPlane, ListenerStats } from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { partsOf, type ServicePortName } from '../../model/service.ts';
import type { CarriedPort, EndpointSetName } from '../../model/service-port.ts';
import { type EndpointSet, type ServicePort, verdictOf } from '../../model/service-port.ts';
import type {
  EndpointState,
  EndpointView,
  ListenerView,
  ServiceFilter,
  ServiceState,
  ServiceView,
  Traffic,
} from '../../model/view.ts';
import { addRates, addTo, NO_RATES, noCounters } from './counters.ts';
import type { DialErrors } from './dial-errors.ts';
import type { TrafficSampler } from './traffic-sampler.ts';
import { type Trouble, worst } from './trouble.ts';

/** What one address family carries. */
export interface CarriedPorts {
  readonly family: IpFamily;
  names(): Iterable<ServicePortName>;
  carried(name: ServicePortName): CarriedPort | undefined;
}

export interface ServiceViewSources {
  /** Those that are served now, IPv4 first. */
  readonly families: () => readonly CarriedPorts[];
  readonly dataPlane: Pick<DataPlane, 'statsOf'>;
  readonly sampler: Pick<TrafficSampler, 'ratesOf' | 'troubleOf'>;
  readonly dialErrors: Pick<DialErrors, 'last'>;
  /** Whether an operator has taken it out. */
  readonly isDrained: (endpoint: Endpoint) => boolean;
}

/** See `View.services`. */
export function* serviceViews(sources: ServiceViewSources, filter: ServiceFilter = {}): Iterable<ServiceView> {
  const names = new Set<ServicePortName>();
  for (const family of sources.families()) {
    for (const name of family.names()) if (matches(name, filter)) names.add(name);
  }
  for (const name of [...names].sort()) {
    for (const family of sources.families()) {
      const view = serviceView(sources, family, name, filter.summary);
      if (view !== undefined) yield view;
    }
  }
}

/** `undefined` when that family does not carry it. */
export function serviceView(
  sources: ServiceViewSources,
  { family, carried }: Pick<CarriedPorts, 'family' | 'carried'>,
  name: ServicePortName,
  isSummary = false,
): ServiceView | undefined {
  const port = carried(name);
  if (port === undefined) return undefined;
  const { servicePort } = port;
  const counters = noCounters();
  let rates = NO_RATES;
  const listeners = port.listeners.map(({ id, set, localPort }): ListenerView => {
    const stats = sources.dataPlane.statsOf(id);
    if (stats !== undefined) addTo(counters, stats.counters);
    rates = addRates(rates, sources.sampler.ratesOf(id));
    const endpoints = set === 'local' && servicePort.local !== undefined ? servicePort.local : servicePort;
    return {
      set,
      localPort,
      ...(stats?.worker !== undefined && { worker: stats.worker }),
      traffic: trafficOf(set, servicePort),
      endpoints: isSummary ? [] : endpointViews(sources, name, endpoints, stats),
      endpointCount: {
        all: endpoints.endpoints.length + (endpoints.draining?.length ?? 0),
        active: endpoints.endpoints.length,
      },
    };
  });
  const trouble = worst(port.listeners.map(({ id }) => sources.sampler.troubleOf(id)));
  const { protocol, port: number, nodePort, clusterIPs, externalIPs, loadBalancerIPs, affinity } = servicePort;
  return {
    name,
    ...partsOf(name),
    family,
    protocol,
    port: number,
    nodePort,
    clusterIPs,
    externalIPs,
    loadBalancerIPs,
    affinity,
    ...stateOf(servicePort, listeners, { trouble, drained: drainedOf(sources, servicePort) }),
    counters,
    rates,
    listeners,
  };
}

export function matches(name: ServicePortName, { namespace, service }: ServiceFilter): boolean {
  if (namespace === undefined && service === undefined) return true;
  const parts = partsOf(name);
  return (
    (namespace === undefined || parts.namespace === namespace) && (service === undefined || parts.service === service)
  );
}

function endpointViews(
  { dialErrors, isDrained }: ServiceViewSources,
  name: ServicePortName,
  { endpoints, draining = [] }: EndpointSet,
  stats: ListenerStats | undefined,
): EndpointView[] {
  const counted = new Map(stats?.endpoints?.map((each) => [endpointName(each.endpoint), each.counters]));
  const view = (endpoint: Endpoint, state: EndpointState): EndpointView => {
    const key = endpointName(endpoint);
    const counters = counted.get(key);
    const lastError = dialErrors.last(name, key);
    return { endpoint, state, ...(counters && { counters }), ...(lastError && { lastError }) };
  };
  return [
    ...endpoints.map((endpoint) => view(endpoint, 'active')),
    ...draining.map((endpoint) => view(endpoint, isDrained(endpoint) ? 'drained' : 'draining')),
  ];
}

/** Which connections come to this set's listener (docs/adr/0009). */
function trafficOf(set: EndpointSetName, { local }: ServicePort): Traffic[] {
  if (local === undefined) return ['internal', 'external'];
  if (set === 'local') return [...kind('internal', local.internal), ...kind('external', local.external)];
  return [...kind('internal', !local.internal), local.external ? 'node' : 'external'];
}

function kind(traffic: Traffic, isTaken: boolean): Traffic[] {
  return isTaken ? [traffic] : [];
}

/** How many of its endpoints an operator has taken out. */
function drainedOf({ isDrained }: ServiceViewSources, { draining, local }: ServicePort): number {
  return [...(draining ?? []), ...(local?.draining ?? [])].filter(isDrained).length;
}

function stateOf(
  own: EndpointSet,
  listeners: readonly ListenerView[],
  { trouble, drained }: { readonly trouble: Trouble | undefined; readonly drained: number },
): { readonly state: ServiceState; readonly reason?: string } {
  if (listeners.some(({ localPort }) => localPort === undefined)) {
    return { state: 'pending', reason: 'its listener is not open yet' };
  }
  switch (verdictOf(own)) {
    case 'reject':
      return { state: 'empty', reason: drained > 0 ? 'its endpoints are drained' : 'no endpoint is ready' };
    case 'drop':
      return { state: 'empty', reason: 'no endpoint on this node may serve, and its policy is Local' };
    case 'proxy':
      if (trouble !== undefined) return { state: 'degraded', reason: trouble.reason };
      if (drained > 0) return { state: 'degraded', reason: 'endpoints are drained' };
      return { state: 'ok' };
  }
}
