import { failuresOf } from '../../model/data-plane.ts';
import { endpointName } from '../../model/endpoint.ts';
import type { EndpointView, ListenerView, ServiceView } from '../../model/view.ts';
import { ago, amount, bytes, whole } from './amounts.ts';
import { type Content, type Html, html } from './html.ts';
import { type PageQuery, printPageQuery, rowKey, type Sort } from './page-query.ts';
import type { Selection } from './selection.ts';

interface Column {
  readonly title: string;
  readonly sort?: Sort;
  readonly isNumber?: true;
  readonly cell: (view: ServiceView) => Content;
}

const COLUMNS: readonly Column[] = [
  { title: 'State', sort: 'state', cell: stateCell },
  { title: 'Service', sort: 'name', cell: () => undefined },
  { title: 'Address', cell: addressCell },
  { title: 'Endpoints', sort: 'endpoints', isNumber: true, cell: endpointsCell },
  { title: 'Active', sort: 'active', isNumber: true, cell: ({ counters }) => whole(counters.active) },
  { title: 'New/s', sort: 'rate', isNumber: true, cell: ({ rates }) => amount(rates.connections) },
  { title: 'Total', sort: 'total', isNumber: true, cell: ({ counters }) => whole(counters.connections) },
  { title: 'In/s', sort: 'in', isNumber: true, cell: ({ rates }) => bytes(rates.receivedBytes) },
  { title: 'Out/s', sort: 'out', isNumber: true, cell: ({ rates }) => bytes(rates.sentBytes) },
  { title: 'In', sort: 'received', isNumber: true, cell: ({ counters }) => bytes(counters.receivedBytes) },
  { title: 'Out', sort: 'sent', isNumber: true, cell: ({ counters }) => bytes(counters.sentBytes) },
  { title: 'Retries', sort: 'retries', isNumber: true, cell: ({ counters }) => whole(counters.retries) },
  { title: 'Failures', sort: 'failures', isNumber: true, cell: failuresCell },
];

export function servicesTable(selection: Selection, query: PageQuery, now: number): Html {
  const { rows, matching } = selection;
  return html`${summary(selection)}
<div class="scroll"><table>
<thead><tr>${COLUMNS.map((column) => heading(column, query))}</tr></thead>
<tbody>${rows.map((view) => row(view, query, now))}</tbody>
</table></div>
${matching === 0 ? html`<p class="dim">No Service port matches.</p>` : undefined}${pager(selection, query)}`;
}

function summary({ states, matching }: Selection): Html {
  const all = states.ok + states.degraded + states.empty + states.pending;
  const parts = (['empty', 'degraded', 'pending', 'ok'] as const).filter((state) => states[state] > 0);
  return html`<p id="summary" aria-live="off">${whole(all)} Service ports${
    matching === all ? '' : `, ${whole(matching)} shown`
  } ${parts.map((state) => html`<span class="state ${state}">${whole(states[state])} ${state}</span> `)}</p>`;
}

function heading({ title, sort, isNumber }: Column, query: PageQuery): Html {
  if (sort === undefined) return html`<th scope="col">${title}</th>`;
  const isSorted = query.sort === sort;
  const to = printPageQuery({ ...query, sort, reversed: isSorted && !query.reversed, page: 1 });
  // Names grow and numbers fall, until they are reversed.
  const grows = (sort === 'name') !== query.reversed;
  const order = isSorted ? (grows ? 'ascending' : 'descending') : 'none';
  return html`<th scope="col" class="${isNumber ? 'number' : ''}" aria-sort="${order}"><a id="sort-${sort}" href="${to}">${title}</a></th>`;
}

function row(view: ServiceView, query: PageQuery, now: number): Html {
  const key = rowKey(view);
  const isOpen = query.open.includes(key);
  const open = isOpen ? query.open.filter((each) => each !== key) : [...query.open, key];
  const link = html`<a id="row-${key}" href="${printPageQuery({ ...query, open })}" role="button" aria-expanded="${String(isOpen)}">${isOpen ? '▾' : '▸'} ${view.name}</a>${
    view.family === 'IPv6' ? html` <small>IPv6</small>` : undefined
  }`;
  return html`<tr id="tr-${key}">${COLUMNS.map((column) => {
    if (column.sort === 'name') return html`<th scope="row">${link}</th>`;
    return html`<td class="${column.isNumber ? 'number' : ''}">${column.cell(view)}</td>`;
  })}</tr>${isOpen ? html`<tr id="open-${key}" class="open"><td colspan="${COLUMNS.length}">${details(view, now)}</td></tr>` : undefined}`;
}

function stateCell({ state, reason }: ServiceView): Html {
  return html`<span class="state ${state}" title="${reason ?? 'serves'}">${state}</span>`;
}

function addressCell({ clusterIPs, port, protocol, nodePort }: ServiceView): Html {
  return html`${endpointName({ address: clusterIPs[0] ?? '', port })} ${protocol}${
    nodePort > 0 ? html` <small>:${nodePort}</small>` : undefined
  }`;
}

function endpointsCell({ listeners: [own] }: ServiceView): string {
  const { all, active } = own?.endpointCount ?? { all: 0, active: 0 };
  return all === active ? String(all) : `${active} of ${all}`;
}

function failuresCell({ counters }: ServiceView): Content {
  const failures = failuresOf(counters);
  return failures === 0 ? '0' : html`<b class="failed">${whole(failures)}</b>`;
}

function details(view: ServiceView, now: number): Html {
  const { reason, affinity, externalIPs, loadBalancerIPs, nodePort, clusterIPs } = view;
  const facts: readonly (readonly [string, string])[] = [
    ['state', reason === undefined ? view.state : `${view.state}: ${reason}`],
    ['cluster IP', clusterIPs.join(', ')],
    ['node port', nodePort > 0 ? String(nodePort) : ''],
    ['external IPs', externalIPs.join(', ')],
    ['load balancer', loadBalancerIPs.join(', ')],
    ['affinity', affinity.type === 'ClientIP' ? `client IP, ${affinity.timeoutSeconds} s` : ''],
  ];
  return html`<ul class="facts">${facts
    .filter(([, value]) => value !== '')
    .map(([name, value]) => html`<li><span class="dim">${name}</span> ${value}</li>`)}</ul>
${view.listeners.map((listener) => endpointsTable(listener, view, now))}`;
}

/** For each, and with every row that may be open, the page is made within some tens of milliseconds. */
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
<thead><tr><th scope="col">Endpoint</th><th scope="col">State</th><th scope="col" class="number">Active</th><th scope="col" class="number">Total</th><th scope="col">Share</th><th scope="col" class="number">In</th><th scope="col" class="number">Out</th><th scope="col" class="number">Failures</th><th scope="col">Last error</th></tr></thead>
<tbody>${endpoints.slice(0, SHOWN_ENDPOINTS).map((endpoint) => endpointRow(endpoint, total, now))}</tbody></table>
${endpointsNote(endpoints.length)}`;
}

function endpointsNote(count: number): Html | undefined {
  if (count === 0) return html`<p class="dim">No endpoint is known.</p>`;
  if (count <= SHOWN_ENDPOINTS) return undefined;
  return html`<p class="dim">And ${whole(count - SHOWN_ENDPOINTS)} more, which <a href="/status.csv">the CSV</a> has.</p>`;
}

function endpointRow({ endpoint, state, counters, lastError }: EndpointView, total: number, now: number): Html {
  const count = (value: number | undefined) => (value === undefined ? '–' : whole(value));
  const size = (value: number | undefined) => (value === undefined ? '–' : bytes(value));
  return html`<tr><th scope="row">${endpointName(endpoint)}</th>
<td><span class="state ${state}">${state}</span></td>
<td class="number">${count(counters?.active)}</td><td class="number">${count(counters?.connections)}</td>
<td>${share(counters?.connections ?? 0, total)}</td>
<td class="number">${size(counters?.receivedBytes)}</td><td class="number">${size(counters?.sentBytes)}</td>
<td class="number">${count(counters && failuresOf(counters))}</td>
<td class="error">${lastError === undefined ? '' : `${lastError.err} (${ago(now - lastError.at)})`}</td></tr>`;
}

function share(part: number, total: number): Html {
  const percent = total === 0 ? 0 : (100 * part) / total;
  return html`<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" height="10"/><rect class="part" width="${percent.toFixed(1)}" height="10"/></svg> ${Math.round(percent)} %`;
}

function pager({ page, pages }: Selection, query: PageQuery): Html | undefined {
  if (pages === 1) return undefined;
  const link = (to: number, text: string) =>
    to < 1 || to > pages
      ? html`<span class="dim">${text}</span>`
      : html`<a id="page-${text}" href="${printPageQuery({ ...query, page: to })}">${text}</a>`;
  return html`<nav aria-label="Pages">${link(page === 1 ? 0 : 1, 'first')} ${link(page - 1, 'previous')} page ${page} of ${pages} ${link(page + 1, 'next')} ${link(page === pages ? 0 : pages, 'last')}</nav>`;
}
