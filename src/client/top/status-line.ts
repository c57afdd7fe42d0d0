import { endpointName } from '../../model/endpoint.ts';
import { shortDuration } from '../format/duration.ts';
import { oneColumnEach } from '../format/text.ts';
import { SERVICE_STATES } from './columns.ts';
import { type Glyphs, type Line, line, type Span, span } from './frame.ts';
import type { EndpointRow, OpenedService, ServiceRow } from './look.ts';
import type { Scene } from './render.ts';
import { selectedIndex } from './state.ts';

/** The one thing that matters most now: a problem, the filter, or what the selected row has no column for. */
export function statusLine(scene: Scene, columns: number, glyphs: Glyphs): Line {
  return line(columns, statusSpans(scene), glyphs);
}

function statusSpans({ state, look, services, endpoints, problem }: Scene): Span[] {
  if (problem !== undefined) return [span(oneColumnEach(problem), 'bad')];
  if (state.isTyping) return [span(`Filter: ${state.filter}_ `, 'heading'), span(` ${services.length} match`)];
  const paused = state.isPaused ? [span('PAUSED', 'warning'), span('  ')] : [];
  if (state.opened !== undefined) {
    const endpoint = endpoints[selectedIndex(state.endpoints, endpoints)];
    return [...paused, ...openedSpans(look.opened, state.opened.key), ...errorSpans(endpoint, look.node.now)];
  }
  const filter = state.filter === '' ? [] : [span(`Filter: ${state.filter}`, 'warning'), span('  ')];
  return [...paused, ...filter, ...selectedSpans(services[selectedIndex(state.services, services)])];
}

function selectedSpans(row: ServiceRow | undefined): Span[] {
  if (row === undefined) return [span('no Service to show')];
  const { name, protocol, address, state, reason } = row;
  const why = reason === undefined ? [] : [span(': '), span(oneColumnEach(reason), SERVICE_STATES[state].style)];
  return [span(name), ...why, span(`  ${protocol} ${address}`, 'faint')];
}

function openedSpans(opened: OpenedService | undefined, key: string): Span[] {
  if (opened === undefined) return [span(`${key} is not served any more`, 'warning')];
  const { name, protocol, port, nodePort, clusterIPs, state, reason } = opened.service;
  const addresses = clusterIPs.map((address) => endpointName({ address, port }));
  const where = [...addresses, ...(nodePort === 0 ? [] : [`NodePort ${nodePort}`])].join(', ');
  const { style } = SERVICE_STATES[state];
  return [
    span(`${name}  ${protocol} ${where}  `),
    span(state, style),
    span(reason === undefined ? '' : `: ${oneColumnEach(reason)}`),
  ];
}

function errorSpans(row: EndpointRow | undefined, now: number): Span[] {
  const error = row?.endpoint.lastError;
  if (error === undefined) return [];
  return [span(`  last error ${shortDuration(now - error.at)} ago: ${oneColumnEach(error.err)}`, 'bad')];
}
