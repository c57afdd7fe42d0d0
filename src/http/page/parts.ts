import type { NodeView, View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { eventsTable } from './events-table.ts';
import type { Html } from './html.ts';
import { healthMark, overview, plots } from './overview.ts';
import type { PageQuery } from './page-query.ts';
import { select } from './selection.ts';
import { servicesTable } from './services-table.ts';

/** What of the page changes while one looks at it, by the id of the element that it fills. */
export type Parts = Readonly<Record<'mark' | 'overview' | 'plots' | 'services' | 'events', Html>>;

export async function makeParts(
  view: View,
  query: PageQuery,
  clock: Clock,
): Promise<{ readonly node: NodeView; readonly parts: Parts }> {
  const node = await view.node();
  const selection = await select(view, query, clock);
  return {
    node,
    parts: {
      mark: healthMark(node),
      overview: overview(node),
      plots: plots(view.history()),
      services: servicesTable(selection, query, node.now),
      events: eventsTable(view.events()),
    },
  };
}
