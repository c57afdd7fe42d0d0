import { PROGRAM } from '../../cli/version.ts';
import { type FamilyView, hasManyOpen, type NodeView, SAMPLE_MS, type ServiceState } from '../../contracts/view.ts';
import { shortDuration, timeOfDay } from '../format/duration.ts';
import { shortNumber } from '../format/number.ts';
import { oneColumnEach } from '../format/text.ts';
import { SERVICE_STATES } from './columns.ts';
import { type Glyphs, type Line, line, type Size, type Span, type Style, span, spread } from './frame.ts';
import type { Look, ServiceRow } from './look.ts';
import { sparkline } from './sparkline.ts';

/** A screen with fewer rows has only the two most important lines, and a third one when Services may be outdated. */
const ROOMY_ROWS = 16;

/** When there is a problem, all of it is of a moment that is over. */
export function headerLines(look: Look, hasProblem: boolean, { columns, rows }: Size, glyphs: Glyphs): Line[] {
  const { node } = look;
  const isRoomy = rows >= ROOMY_ROWS;
  return [
    spread(columns, [healthSpan(node, hasProblem), programSpan(node)], [span(timeOfDay(node.now), 'faint')], glyphs),
    ...(isRoomy ? [line(columns, servicesSpans(look.services), glyphs)] : []),
    ...(isRoomy || mayBeOutdated(node) ? [line(columns, upstreamSpans(node), glyphs)] : []),
    ...(isRoomy ? [line(columns, processSpans(node), glyphs)] : []),
    line(columns, trafficSpans(look), glyphs),
    ...(isRoomy ? [historyLine(look, columns, glyphs)] : []),
  ];
}

function mayBeOutdated({ api, families }: NodeView): boolean {
  return api?.connected === false || families.some(({ lastSync }) => lastSync?.err !== undefined);
}

function healthSpan({ healthy }: NodeView, hasProblem: boolean): Span {
  if (hasProblem) return span('NO ANSWER', 'bad');
  return healthy ? span('healthy', 'good') : span('UNHEALTHY', 'bad');
}

function programSpan({ version, nodeName, startedAt, now }: NodeView): Span {
  return span(`  ${PROGRAM} ${version} on ${oneColumnEach(nodeName)}, up ${shortDuration(now - startedAt)} `);
}

function servicesSpans(services: readonly ServiceRow[]): Span[] {
  const counts = new Map<ServiceState, number>();
  for (const { state } of services) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [
    ...labelled('Services', String(services.length)),
    ...(['ok', 'degraded', 'empty', 'pending'] as const).flatMap((state) => {
      const count = counts.get(state) ?? 0;
      return labelled(state, String(count), count > 0 ? SERVICE_STATES[state].style : 'plain');
    }),
  ];
}

function upstreamSpans({ api, families, drained, now }: NodeView): Span[] {
  return [
    ...labelled('API', apiText(api), api === undefined || api.connected ? 'plain' : 'bad'),
    ...families.flatMap((family) => ruleSpans(family, now)),
    ...(drained.length > 0 ? labelled('drained', String(drained.length), 'warning') : []),
  ];
}

function apiText(api: NodeView['api']): string {
  if (api === undefined) return 'none, from files';
  return api.connected ? 'connected' : `away for ${shortDuration(api.staleForMs)}`;
}

function ruleSpans({ family, pending, lastSync, lastSyncedAt }: FamilyView, now: number): Span[] {
  const waiting = pending > 0 ? `, ${shortNumber(pending)} waiting` : '';
  if (lastSync?.err !== undefined) {
    return labelled(family, `FAILED ${shortDuration(now - lastSync.at)} ago: ${oneColumnEach(lastSync.err)}`, 'bad');
  }
  if (lastSync === undefined || lastSyncedAt === undefined) return labelled(family, 'not synced yet', 'warning');
  return labelled(
    family,
    `synced ${shortDuration(now - lastSyncedAt)} ago in ${lasted(lastSync.durationMs)}${waiting}`,
  );
}

/** "35ms", "1.7s": both families fit on 80 columns. */
function lasted(ms: number): string {
  return ms < 999.5 ? `${Math.round(ms)}ms` : `${(ms / 1_000).toFixed(1)}s`;
}

function processSpans({ loopDelayMs, memory, descriptors, engine, workers }: NodeView): Span[] {
  return [
    ...labelled('RSS', shortNumber(memory.rss)),
    ...labelled('fds', descriptorsText(descriptors), hasManyOpen(descriptors) ? 'bad' : 'plain'),
    ...labelled('loop p99', `${shortNumber(loopDelayMs.p99)} ms`),
    ...labelled('max', `${shortNumber(loopDelayMs.max)} ms`),
    ...labelled('engine', workers === undefined ? engine : `${engine}, ${workers} worker${workers === 1 ? '' : 's'}`),
  ];
}

function descriptorsText({ open, limit }: NodeView['descriptors']): string {
  return limit === undefined ? String(open) : `${open}/${shortNumber(limit)}`;
}

function trafficSpans({ services }: Look): Span[] {
  const sum = (of: (row: ServiceRow) => number) => shortNumber(services.reduce((total, row) => total + of(row), 0));
  const failures = sum(({ rates }) => rates.failures);
  return [
    ...labelled(
      'Connections',
      sum(({ active }) => active),
    ),
    ...labelled(
      'new/s',
      sum(({ rates }) => rates.connections),
    ),
    ...labelled(
      'in/s',
      sum(({ rates }) => rates.receivedBytes),
    ),
    ...labelled(
      'out/s',
      sum(({ rates }) => rates.sentBytes),
    ),
    ...labelled('failed/s', failures, failures === '0' ? 'plain' : 'bad'),
  ];
}

/** New connections per second, the program's own samples. */
function historyLine({ history }: Look, columns: number, glyphs: Glyphs): Line {
  const label = 'new/s ';
  const values = history.map(({ connections }) => connections);
  const width = Math.max(0, Math.min(values.length, columns - label.length - ' peak 1.2K in 14m59s'.length));
  const peak = Math.max(0, ...values.slice(values.length - width));
  return line(
    columns,
    [
      span(label, 'faint'),
      span(sparkline(values, width, glyphs.levels), 'good'),
      span(` peak ${shortNumber(peak)} in ${shortDuration(width * SAMPLE_MS)}`),
    ],
    glyphs,
  );
}

function labelled(label: string, value: string, style: Style = 'plain'): Span[] {
  return [span(`${label} `, 'faint'), span(value, style), span('  ')];
}
