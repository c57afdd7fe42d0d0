import { boundText, failuresOf } from '../../model/data-plane.ts';
import { endpointName } from '../../model/endpoint.ts';
import {
  type EndpointView,
  isProblem,
  type ListenerView,
  type NodeView,
  noStates,
  SERVICE_STATES,
  SEVERITY,
  type ServiceView,
  type StateCounts,
  type View,
} from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import { eachInSlices } from '../../util/wait.ts';
import { ago, amount, bytes, type Content, type Html, html, span, whole } from './html.ts';
import { type PageQuery, printPageQuery, rowKey, type Sort } from './page-query.ts';

/* The table of Services: which of them one page shows, and how. */

export const ROWS_PER_PAGE = 100;

/** The rows of one page of the table. */
export interface Selection {
  readonly rows: readonly ServiceView[];
  /** Also of rows that are not shown. */
  readonly states: Readonly<StateCounts>;
  /** How many match, on all pages together. */
  readonly matching: number;
  /** From 1, at most {@link Selection.pages}. */
  readonly page: number;
  readonly pages: number;
}

interface Column {
  readonly title: string;
  readonly sort?: Sort;
  /** What the column sorts by; the largest come first. Names are in their order already. */
  readonly key?: (view: ServiceView) => number;
  readonly isNumber?: true;
  readonly cell: (view: ServiceView) => Content;
}

const COLUMNS: readonly Column[] = [
  { title: 'State', sort: 'state', key: ({ state }) => SEVERITY[state], cell: stateCell },
  { title: 'Service', sort: 'name', cell: () => undefined },
  { title: 'Address', cell: addressCell },
  {
    ...number('Endpoints', 'endpoints', ({ listeners }) => listeners[0]?.endpointCount.active ?? 0),
    cell: endpointsCell,
  },
  // Among the first, so that a narrow window shows them without scrolling.
  number(
    'Failures',
    'failures',
    ({ counters }) => failuresOf(counters),
    (failures) => (failures === 0 ? '0' : html`<b class="failed">${whole(failures)}</b>`),
  ),
  number('Active', 'active', ({ counters }) => counters.active),
  number('Waiting', 'waiting', ({ counters }) => counters.waiting),
  number('New/s', 'rate', ({ rates }) => rates?.connections, amount),
  number('Connect p99', 'connect', ({ connectTime }) => connectTime?.p99, boundText),
  number('Total', 'total', ({ counters }) => counters.connections),
  number('In/s', 'in', ({ rates }) => rates?.receivedBytes, bytes),
  number('Out/s', 'out', ({ rates }) => rates?.sentBytes, bytes),
  number('In', 'received', ({ counters }) => counters.receivedBytes, bytes),
  number('Out', 'sent', ({ counters }) => counters.sentBytes, bytes),
  number('Retries', 'retries', ({ counters }) => counters.retries),
];

function number(
  title: string,
  sort: Sort,
  key: (view: ServiceView) => number | undefined,
  show: (value: number) => Content = whole,
): Column {
  return { title, sort, key: (view) => key(view) ?? 0, isNumber: true, cell: (view) => known(key(view), show) };
}

/** Reads every Service, in slices of the event loop. Only open rows get their endpoints; the others are summaries. */
export async function select(view: View, query: PageQuery, clock: Clock): Promise<Selection> {
  const matches: (Pick<ServiceView, 'name' | 'family'> & { readonly key: number })[] = [];
  const states = noStates();
  const keyOf = COLUMNS.find(({ sort }) => sort === query.sort)?.key;
  await eachInSlices(clock, view.services({ summary: true }), (service) => {
    const { name, family, state } = service;
    states[state]++;
    if (isWanted(service, query)) matches.push({ name, family, key: keyOf?.(service) ?? 0 });
  });
  // The sort is stable: equal ones stay in the order of their names.
  if (keyOf !== undefined) matches.sort((a, b) => (query.reversed ? a.key - b.key : b.key - a.key));
  else if (query.reversed) matches.reverse();
  const pages = Math.max(1, Math.ceil(matches.length / ROWS_PER_PAGE));
  const page = Math.min(query.page, pages);
  const shown = matches.slice((page - 1) * ROWS_PER_PAGE, page * ROWS_PER_PAGE);
  const rows = shown.flatMap(
    (match) => view.service(match.name, match.family, { summary: !query.open.includes(rowKey(match)) }) ?? [],
  );
  return { rows, states, matching: matches.length, page, pages };
}

function isWanted(view: ServiceView, { words, hideHealthy }: PageQuery): boolean {
  if (hideHealthy && !isProblem(view)) return false;
  if (words.length === 0) return true;
  const { name, clusterIPs, externalIPs, loadBalancerIPs, port, nodePort, protocol, state } = view;
  const text = [name, ...clusterIPs, ...externalIPs, ...loadBalancerIPs, port, nodePort, protocol, state]
    .join(' ')
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

export function servicesTable(selection: Selection, query: PageQuery, { now, source }: NodeView): Html {
  const { rows, states, matching } = selection;
  const all = Object.values(states).reduce((sum, count) => sum + count, 0);
  const counts = SERVICE_STATES.filter((state) => states[state] > 0).map(
    (state) => html`<span class="state ${state}">${whole(states[state])} ${state}</span> `,
  );
  const shown = matching === all ? '' : `, ${whole(matching)} shown`;
  return html`<p id="summary" aria-live="off">${whole(all)} Service ports${shown} ${counts}</p>
<div class="scroll" tabindex="0" role="region" aria-label="Table of Services"><table>
<thead><tr>${COLUMNS.map((column) => heading(column, query))}</tr></thead>
<tbody>${rows.map((view) => row(view, query, now))}</tbody>
</table></div>
${matching === 0 ? emptyNote(all, source) : undefined}${pager(selection, query)}`;
}

function emptyNote(all: number, source: string): Html {
  if (all > 0) return html`<p class="dim">No Service port matches.</p>`;
  return html`<p>No Service is served. They are read from ${source}, and none is there.</p>`;
}

function heading({ title, sort, isNumber }: Column, query: PageQuery): Html {
  if (sort === undefined) return html`<th scope="col" class="wide">${title}</th>`;
  const isSorted = query.sort === sort;
  const to = printPageQuery({ ...query, sort, reversed: isSorted && !query.reversed, page: 1 });
  // Names ascend and numbers descend, until they are reversed.
  const order = (sort === 'name') !== query.reversed ? 'ascending' : 'descending';
  return html`<th scope="col" class="${isNumber ? 'number' : ''}" aria-sort="${isSorted ? order : 'none'}"><a id="sort-${sort}" href="${to}">${title}</a></th>`;
}

function row(view: ServiceView, query: PageQuery, now: number): Html {
  const key = rowKey(view);
  const isOpen = query.open.includes(key);
  const open = isOpen ? query.open.filter((each) => each !== key) : [...query.open, key];
  const link = html`<a id="row-${key}" href="${printPageQuery({ ...query, open })}" role="button" aria-expanded="${String(isOpen)}" class="cut" title="${view.name}">${isOpen ? '▾' : '▸'} ${view.name}</a>${
    view.family === 'IPv6' ? html` <small>IPv6</small>` : undefined
  }`;
  return html`<tr id="tr-${key}">${COLUMNS.map(({ sort, isNumber, cell }) => {
    if (sort === 'name') return html`<th scope="row">${link}</th>`;
    return html`<td class="${isNumber ? 'number' : sort === undefined ? 'wide' : ''}">${cell(view)}</td>`;
  })}</tr>${isOpen ? html`<tr id="open-${key}" class="open"><td colspan="${COLUMNS.length}">${details(view, now)}</td></tr>` : undefined}`;
}

function stateCell({ state, reason }: ServiceView): Html {
  return html`<span class="state ${state}" title="${reason ?? 'serves'}">${state}</span>`;
}

function addressCell({ clusterIPs, externalIPs, loadBalancerIPs, port, protocol, nodePort }: ServiceView): Html {
  const [first] = [...clusterIPs, ...externalIPs, ...loadBalancerIPs];
  const at = first === undefined ? '' : endpointName({ address: first, port });
  return html`<span class="cut" title="${at}">${at}</span> ${protocol}${
    nodePort > 0 ? html` <small>:${nodePort}</small>` : undefined
  }`;
}

function endpointsCell({ listeners: [own] }: ServiceView): string {
  const { all, active } = own?.endpointCount ?? { all: 0, active: 0 };
  return all === active ? String(all) : `${active} of ${all}`;
}

function details(view: ServiceView, now: number): Html {
  const { state, reason, scheduler, slowStartMs, affinity, externalIPs, loadBalancerIPs, nodePort, clusterIPs } = view;
  const { waitMs, maxConnections } = view;
  const facts: readonly (readonly [string, string])[] = [
    ['state', reason === undefined ? state : `${state}: ${reason}`],
    ['cluster IP', clusterIPs.join(', ')],
    ['node port', nodePort > 0 ? String(nodePort) : ''],
    ['external IPs', externalIPs.join(', ')],
    ['load balancer', loadBalancerIPs.join(', ')],
    ['scheduler', slowStartMs === undefined ? scheduler : `${scheduler}, slow start ${span(slowStartMs)}`],
    ['without endpoints', waitMs === undefined ? '' : `clients wait up to ${span(waitMs)}`],
    ['connections of an endpoint', maxConnections === undefined ? '' : `at most ${whole(maxConnections)}`],
    ['affinity', affinity.type === 'ClientIP' ? `client IP, ${affinity.timeoutSeconds} s` : ''],
  ];
  return html`<ul class="facts">${facts
    .filter(([, value]) => value !== '')
    .map(([name, value]) => html`<li><span class="dim">${name}</span> ${value}</li>`)}</ul>
${view.listeners.map((listener) => endpointsTable(listener, view, now))}`;
}

/** Per row. With this many in every row that may be open, rendering the page takes some tens of milliseconds. */
const SHOWN_ENDPOINTS = 200;

const TRAFFIC_NAMES = {
  internal: 'from the cluster',
  external: 'from outside',
  node: 'from this node to outside addresses',
};

function endpointsTable({ localPort, worker, traffic, endpoints }: ListenerView, view: ServiceView, now: number): Html {
  const total = endpoints.reduce((sum, { counters }) => sum + (counters?.connections ?? 0), 0);
  const where = localPort === undefined ? 'not listening yet' : `local port ${localPort}`;
  const which =
    view.listeners.length > 1 ? ` · connections ${traffic.map((each) => TRAFFIC_NAMES[each]).join(' and ')}` : '';
  return html`<table class="endpoints"><caption>${where}${worker === undefined ? '' : ` · worker ${worker}`}${which}</caption>
<thead><tr><th scope="col">Endpoint</th><th scope="col">State</th><th scope="col" class="number">Weight</th><th scope="col" class="number">Active</th><th scope="col" class="number">Total</th><th scope="col">Share</th><th scope="col" class="number">Connect p50</th><th scope="col" class="number">p99</th><th scope="col" class="number">In</th><th scope="col" class="number">Out</th><th scope="col" class="number">Failures</th><th scope="col">Last error</th></tr></thead>
<tbody>${endpoints.slice(0, SHOWN_ENDPOINTS).map((endpoint) => endpointRow(endpoint, total, now))}</tbody></table>
${endpointsNote(endpoints.length)}`;
}

function endpointsNote(count: number): Html | undefined {
  if (count === 0) return html`<p class="dim">No endpoint is known.</p>`;
  if (count <= SHOWN_ENDPOINTS) return undefined;
  return html`<p class="dim">And ${whole(count - SHOWN_ENDPOINTS)} more, which <a href="/status.csv">the CSV</a> has.</p>`;
}

/** A dash where nothing is known yet. */
function known(value: number | undefined, show: (value: number) => Content): Content {
  return value === undefined ? '–' : show(value);
}

function endpointRow(view: EndpointView, total: number, now: number): Html {
  const { endpoint, state, weight, counters, connectTime, lastError } = view;
  const shown = (value: number | undefined, show = whole) => html`<td class="number">${known(value, show)}</td>`;
  const percent = total === 0 ? 0 : (100 * (counters?.connections ?? 0)) / total;
  return html`<tr><th scope="row">${endpointName(endpoint)}</th>
<td><span class="state ${state}">${state}</span></td>
${shown(weight)}${shown(counters?.active)}${shown(counters?.connections)}
<td><svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" height="10"/><rect class="part" width="${percent.toFixed(1)}" height="10"/></svg> ${Math.round(percent)} %</td>
${shown(connectTime?.p50, boundText)}${shown(connectTime?.p99, boundText)}
${shown(counters?.receivedBytes, bytes)}${shown(counters?.sentBytes, bytes)}
${shown(counters && failuresOf(counters))}
<td class="error">${lastError === undefined ? '' : `${lastError.err} (${ago(now - lastError.at)})`}</td></tr>`;
}

function pager({ page, pages }: Selection, query: PageQuery): Html | undefined {
  if (pages === 1) return undefined;
  const link = (to: number, text: string) =>
    to === page || to < 1 || to > pages
      ? html`<span class="dim">${text}</span>`
      : html`<a id="page-${text}" href="${printPageQuery({ ...query, page: to })}">${text}</a>`;
  return html`<nav aria-label="Pages">${link(1, 'first')} ${link(page - 1, 'previous')} page ${page} of ${pages} ${link(page + 1, 'next')} ${link(pages, 'last')}</nav>`;
}
