import type { Endpoint } from '../../../model/endpoint.ts';
import type { ServicePortName } from '../../../model/service.ts';
import type { EndpointSetName } from '../../../model/service-port.ts';
import type { EndpointView, ServiceFilter, ServiceView } from '../../../model/view.ts';
import type { Control } from '../../control/protocol.ts';

/** A Service port with the endpoint in question. */
export interface Holder {
  readonly name: ServicePortName;
  /** Open ones to the endpoint. `undefined` where the engine does not count them. */
  readonly connections: number | undefined;
  /** It gives the endpoint new connections. */
  readonly isActive: boolean;
  /** The endpoint sets in which nothing else gets new connections. */
  readonly onlyOneFor: readonly EndpointSetName[];
}

/** Every Service port with this endpoint, among those that the filter lets through. */
export async function holdersOf(control: Control, endpoint: Endpoint, filter: ServiceFilter = {}): Promise<Holder[]> {
  const holders: Holder[] = [];
  for await (const services of control.ask('services', filter)) {
    for (const service of services) {
      const holder = asHolder(service, endpoint);
      if (holder !== undefined) holders.push(holder);
    }
  }
  return holders;
}

function asHolder({ name, listeners }: ServiceView, endpoint: Endpoint): Holder | undefined {
  const found = listeners.flatMap(({ set, endpoints }) => {
    const view = endpoints.find((each) => isSame(each.endpoint, endpoint));
    return view === undefined ? [] : [{ set, view, others: endpoints.filter((each) => each !== view) }];
  });
  if (found.length === 0) return undefined;
  const active = found.flatMap(({ view }) => view.counters?.active ?? []);
  return {
    name,
    connections: active.length < found.length ? undefined : active.reduce((sum, each) => sum + each, 0),
    isActive: found.some(({ view }) => isActive(view)),
    onlyOneFor: found.filter(({ view, others }) => isActive(view) && !others.some(isActive)).map(({ set }) => set),
  };
}

function isActive({ state }: EndpointView): boolean {
  return state === 'active';
}

export function isSame(one: Endpoint, other: Endpoint): boolean {
  return one.address === other.address && one.port === other.port;
}
