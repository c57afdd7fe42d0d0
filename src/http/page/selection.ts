import { failuresOf } from '../../model/data-plane.ts';
import type { ServiceState, ServiceView, View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { inSlices } from '../../util/wait.ts';

import { type PageQuery, rowKey, type Sort } from './page-query.ts';

export const ROWS_PER_PAGE = 100;

/** The rows of one page of the table. */
export interface Selection {
  readonly rows: readonly ServiceView[];
  /** How many Service ports there are in each state, of all. */
  readonly states: Readonly<Record<ServiceState, number>>;
  /** How many match, on all pages together. */
  readonly matching: number;
  /** From 1; the last one where there are fewer than asked for. */
  readonly page: number;
  readonly pages: number;
}

interface Match {
  readonly name: ServiceView['name'];
  readonly family: ServiceView['family'];
  readonly key: number;
}

/** Worst first. */
const SEVERITY: Readonly<Record<ServiceState, number>> = { empty: 3, degraded: 2, pending: 1, ok: 0 };

/** What a column is sorted by; the largest come first. Names are in their order already. */
const KEYS: Readonly<Record<Sort, (view: ServiceView) => number>> = {
  name: () => 0,
  state: ({ state }) => SEVERITY[state],
  active: ({ counters }) => counters.active,
  rate: ({ rates }) => rates.connections,
  total: ({ counters }) => counters.connections,
  in: ({ rates }) => rates.receivedBytes,
  out: ({ rates }) => rates.sentBytes,
  received: ({ counters }) => counters.receivedBytes,
  sent: ({ counters }) => counters.sentBytes,
  retries: ({ counters }) => counters.retries,
  failures: ({ counters }) => failuresOf(counters),
  endpoints: ({ listeners }) => listeners[0]?.endpointCount.active ?? 0,
};

/** Looks at every Service, a slice of the event loop at a time, and keeps of most of them one number. */
export async function select(
  view: Pick<View, 'services' | 'service'>,
  query: PageQuery,
  clock: Clock,
): Promise<Selection> {
  const states = { ok: 0, degraded: 0, empty: 0, pending: 0 };
  const matches: Match[] = [];
  const keyOf = KEYS[query.sort];
  const services = view.services({ summary: true })[Symbol.iterator]();
  await inSlices(clock, () => {
    const next = services.next();
    if (next.done) return false;
    const { name, family, state } = next.value;
    states[state]++;
    if (isWanted(next.value, query)) matches.push({ name, family, key: keyOf(next.value) });
    return true;
  });
  // Stable, so equal ones stay in the order of their names.
  if (query.sort !== 'name') matches.sort((a, b) => (query.reversed ? a.key - b.key : b.key - a.key));
  else if (query.reversed) matches.reverse();
  const pages = Math.max(1, Math.ceil(matches.length / ROWS_PER_PAGE));
  const page = Math.min(query.page, pages);
  const shown = matches.slice((page - 1) * ROWS_PER_PAGE, page * ROWS_PER_PAGE);
  const open = new Set(query.open);
  const rows = shown.flatMap(
    (match) => view.service(match.name, match.family, { summary: !open.has(rowKey(match)) }) ?? [],
  );
  return { rows, states, matching: matches.length, page, pages };
}

function isWanted(view: ServiceView, { words, hideHealthy }: PageQuery): boolean {
  if (hideHealthy && view.state === 'ok') return false;
  if (words.length === 0) return true;
  const { name, clusterIPs, externalIPs, loadBalancerIPs, port, nodePort, protocol, state } = view;
  const text = [name, ...clusterIPs, ...externalIPs, ...loadBalancerIPs, port, nodePort, protocol, state]
    .join(' ')
    .toLowerCase();
  return words.every((word) => text.includes(word));
}
