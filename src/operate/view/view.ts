import type { Address } from '../../model/address.ts';
import type { DataPlane } from '../../model/data-plane.ts';
import type { ConnectionView, Explanation, NodeView, Question, ServiceFilter, View } from '../../model/view.ts';
import type { RecentEvents } from './recent-events.ts';
import { matches, type ServiceViewSources, serviceView, serviceViews } from './service-views.ts';
import type { TrafficSampler } from './traffic-sampler.ts';

export interface ViewSources extends ServiceViewSources {
  readonly dataPlane: Pick<DataPlane, 'statsOf' | 'connections'>;
  readonly sampler: TrafficSampler;
  readonly events: Pick<RecentEvents, 'events'>;
  readonly node: () => Promise<NodeView>;
  readonly explain: (question: Question) => Promise<Explanation>;
}

/** Listeners, which may have a hundred endpoints each, all of them counted. */
const IDLE_AT_ONCE = 16;

export function createView(sources: ViewSources): View {
  return {
    node: sources.node,
    services: (filter) => serviceViews(sources, filter),
    service: (name, family, options) => {
      const carrier = sources.families().find((each) => each.family === family);
      return carrier && serviceView(sources, carrier, name, options?.summary);
    },
    connections: (filter) => connectionViews(sources, filter),
    events: () => sources.events.events,
    history: () => sources.sampler.history,
    explain: sources.explain,
  };
}

async function* connectionViews(
  sources: ViewSources,
  filter: ServiceFilter = {},
): AsyncIterable<readonly ConnectionView[]> {
  let idle = 0;
  for (const { name, servicePort, listeners } of carriedPorts(sources, filter)) {
    const { protocol, port, clusterIPs } = servicePort;
    const virtual = { address: clusterIPs[0] as Address, port };
    for (const { id } of listeners) {
      // Most have none, and asking a worker takes longer than looking at a number.
      if ((sources.dataPlane.statsOf(id)?.counters.active ?? 0) === 0) {
        idle++;
        // Thousands without any must not hold up who takes turns between the pieces.
        if (idle % IDLE_AT_ONCE === 0) yield [];
        continue;
      }
      for await (const piece of sources.dataPlane.connections(id)) {
        yield piece.map(({ endpoint, ...rest }) => {
          return { name, protocol, virtual, ...rest, ...(endpoint !== undefined && { endpoint }) };
        });
      }
    }
  }
}

function* carriedPorts({ families }: ViewSources, filter: ServiceFilter) {
  for (const { names, carried } of families()) {
    for (const name of names()) {
      const port = matches(name, filter) ? carried(name) : undefined;
      if (port !== undefined) yield { name, ...port };
    }
  }
}
