import { endpointName } from '../../model/endpoint.ts';
import { findingText } from '../../model/finding.ts';
import { serversText } from '../../model/source.ts';
import {
  type EventView,
  type FamilyView,
  HISTORY_MS,
  type HistorySample,
  hasManyOpen,
  type NodeView,
  type StateCounts,
  servingStateOf,
} from '../../model/view.ts';
import { counted, listed } from '../../util/text.ts';
import { rfc3339 } from '../../util/timestamp.ts';
import { ago, amount, bytes, type Content, type Html, html, mebibytes, span, whole } from './html.ts';

/* What the page shows beside the Services: the state of the whole, the last fifteen minutes, recent events. */

type Mood = 'good' | 'warn' | 'bad' | 'plain';

/** A loop that is later than this delays new Services and deserves a warning. */
const LATE_LOOP_MS = 100;
const SHOWN_DRAINED = 20;
const SHOWN_EVENTS = 50;

/** Beside the title: one word for the whole, and how many Service ports are not as they should be. */
export function marks({ healthy }: NodeView, { down, empty, waiting, degraded, pending }: Readonly<StateCounts>): Html {
  const count = down + empty + waiting + degraded + pending;
  return html`<span class="mark ${healthy ? 'good' : 'bad'}">${healthy ? 'healthy' : 'unhealthy'}</span>${
    count === 0
      ? undefined
      : html` <a class="mark ${down + empty > 0 ? 'bad' : 'warn'}" href="#services">${whole(count)} ${count === 1 ? 'needs' : 'need'} attention</a>`
  }`;
}

export function overview(node: NodeView): Html {
  const { version, nodeVersion, engine, workers, capture, pid, startedAt, now, totals, rates } = node;
  const { configNotInForce, findings = [], drained, weights, loopDelayMs, memory, descriptors } = node;
  const threads = workers === undefined ? '' : `, ${counted(workers, 'worker')}`;
  const { open, limit } = descriptors;
  const weighted = weights.map((each) => `${endpointName(each)} ${each.weight}`);
  return html`<p class="dim">version ${version} · up ${span(now - startedAt)} · ${engine} engine${threads} · ${capture.method} · Node.js ${nodeVersion} · process ${pid}</p>
<dl class="tiles">
${node.families.map((family) => familyTile(family, now))}
${apiTile(node)}
${tile('Active', whole(totals.active), 'plain', `${rates === undefined ? '–' : amount(rates.connections)} new/s`)}
${tile('In', perSecond(rates?.receivedBytes, bytes), 'plain', `${bytes(totals.receivedBytes)} so far`)}
${tile('Out', perSecond(rates?.sentBytes, bytes), 'plain', `${bytes(totals.sentBytes)} so far`)}
${tile('Failures', perSecond(rates?.failures, amount), failuresMood(rates), `${whole(totals.retries)} retries so far`)}
${tile('Loop delay', span(loopDelayMs.p99), loopDelayMs.p99 > LATE_LOOP_MS ? 'warn' : 'plain', `p99; peak ${span(loopDelayMs.max)}`)}
${tile('Memory', mebibytes(memory.rss), 'plain', `heap ${mebibytes(memory.heapUsed)}`)}
${tile('Descriptors', whole(open), hasManyOpen(descriptors) ? 'warn' : 'plain', limit === undefined ? 'open' : `of ${whole(limit)}`)}
</dl>${
    configNotInForce === undefined
      ? undefined
      : html`<p class="warn">${configNotInForce} has changed and is not in force yet; the log says why</p>`
  }${findings.map((finding) => html`<p class="warn">${findingText(finding)}</p>`)}${
    drained.length === 0
      ? undefined
      : html`<p class="warn">Drained by an operator: ${listed(drained, SHOWN_DRAINED)}</p>`
  }${weights.length === 0 ? undefined : html`<p>Weights set by an operator: ${listed(weighted, SHOWN_DRAINED)}</p>`}`;
}

/** A dash until there is a rate. */
function perSecond(rate: number | undefined, show: (value: number) => string): string {
  return rate === undefined ? '–' : `${show(rate)}/s`;
}

function failuresMood(rates: NodeView['rates']): Mood {
  if (rates === undefined) return 'plain';
  return rates.failures > 0 ? 'warn' : 'good';
}

function tile(name: string, value: Content, mood: Mood, note: Content): Html {
  return html`<div class="${mood}"><dt>${name}</dt><dd><b>${value}</b> <span title="${note}">${note}</span></dd></div>`;
}

function familyTile({ family, lastSync, lastSyncedAt, pending }: FamilyView, now: number): Html {
  const name = `${family} rules`;
  const waiting = pending > 0 ? `; ${whole(pending)} Services wait` : '';
  if (lastSync === undefined) return tile(name, 'not yet', 'warn', `never synced${waiting}`);
  if (lastSync.err === undefined) {
    return tile(name, 'in sync', 'good', `${ago(now - lastSync.at)}, in ${span(lastSync.durationMs)}${waiting}`);
  }
  const last = lastSyncedAt === undefined ? 'never synced' : `last good ${ago(now - lastSyncedAt)}`;
  return tile(name, 'failed', 'bad', `${last}: ${lastSync.err}${waiting}`);
}

function apiTile(node: NodeView): Html {
  const { api } = node;
  if (api === undefined) return tile('Services from', 'files', 'plain', node.source);
  const { connected, staleForMs, servers, servedStateOf } = api;
  const each = serversText(api, node.now, span);
  const state = servedStateOf === undefined ? [] : [servingStateOf(servedStateOf)];
  if (!connected) {
    const served = state.length === 0 ? ['the last state is served'] : state;
    return tile('API server', 'lost', 'bad', [`nothing for ${span(staleForMs)}`, ...served, ...each].join('; '));
  }
  const isWell = servers.every(({ failure }) => failure === undefined);
  return tile('API server', 'connected', isWell ? 'good' : 'warn', [...each, ...state].join('; '));
}

type Line = readonly [name: string, color: string, of: (sample: HistorySample) => number];

const PLOTS: readonly (readonly [title: string, show: (value: number) => string, lines: readonly Line[]])[] = [
  ['New connections', amount, [['', 'a', ({ connections }) => connections]]],
  [
    'Bytes',
    bytes,
    [
      ['in', 'a', ({ receivedBytes }) => receivedBytes],
      ['out', 'b', ({ sentBytes }) => sentBytes],
    ],
  ],
  ['Failures', amount, [['', 'c', ({ failures }) => failures]]],
];

const WIDTH = 300;
const HEIGHT = 60;

/** The last fifteen minutes, the newest sample at the right; the time before the program started stays empty. */
export function plots(history: readonly HistorySample[]): Html {
  const newest = history.at(-1);
  return html`${PLOTS.map(([title, show, lines]) => {
    const top = Math.max(...history.flatMap((sample) => lines.map(([, , of]) => of(sample))), 0);
    const peak = `peak ${show(top)}/s`;
    const points = (of: Line[2]) =>
      history
        .map((sample) => {
          const x = WIDTH * (1 - ((newest?.at ?? 0) - sample.at) / HISTORY_MS);
          const y = top === 0 ? HEIGHT : HEIGHT - (of(sample) / top) * (HEIGHT - 2);
          return `${x.toFixed(1)},${y.toFixed(1)}`;
        })
        .join(' ');
    const values = lines.map(([name, , of]) =>
      `${name} ${newest === undefined ? '–' : `${show(of(newest))}/s`}`.trim(),
    );
    return html`<figure><figcaption><b>${title}</b> ${lines.map(
      ([, color], index) => html`<span class="key ${color}">${values[index]}</span> `,
    )}<span class="dim">${peak}</span></figcaption>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title} over the last fifteen minutes: now ${values.join(', ')}; ${peak}">${lines.map(
      ([, color, of]) => html`<polyline class="${color}" points="${points(of)}"/>`,
    )}</svg></figure>`;
  })}`;
}

/** Newest first. */
export function eventsTable(events: readonly EventView[]): Html {
  if (events.length === 0) return html`<p class="dim">Nothing has happened yet.</p>`;
  const rows = events
    .slice(-SHOWN_EVENTS)
    .reverse()
    .map(({ id, at, level, message, fields }) => {
      const time = rfc3339(at).slice(0, '2026-11-20T13:04:59'.length);
      const pairs = Object.entries(fields).map(
        ([key, value]) => html`<span class="field"><i>${key}</i>${String(value)}</span> `,
      );
      return html`<tr id="event-${id}"><td><time datetime="${time}Z">${time.replace('T', ' ')}</time></td><td><span class="level ${level}">${level}</span></td><td>${message} ${pairs}</td></tr>`;
    });
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of events"><table class="events"><thead><tr><th scope="col">Time<span class="utc"> (UTC)</span></th><th scope="col">Level</th><th scope="col">What</th></tr></thead>
<tbody>${rows}</tbody></table></div>`;
}
