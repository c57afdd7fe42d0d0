import { type FamilyView, type HistorySample, hasManyOpen, type NodeView } from '../../model/view.ts';
import { ago, amount, bytes, mebibytes, span, whole } from './amounts.ts';
import { type Content, type Html, html } from './html.ts';
import { plot } from './plot.ts';

type Mood = 'good' | 'warn' | 'bad' | 'plain';

/** A loop that is later than this holds up new Services, and a warning is due. */
const LATE_LOOP_MS = 100;

/** What the program is, and how it is doing as a whole. */
export function overview(node: NodeView): Html {
  const { version, nodeVersion, engine, workers, iptables, pid, startedAt, now, totals, rates } = node;
  const threads = workers === undefined ? '' : `, ${workers} ${workers === 1 ? 'worker' : 'workers'}`;
  const { open, limit } = node.descriptors;
  return html`<p class="dim">version ${version} · up ${span(now - startedAt)} · ${engine} engine${threads} · iptables ${iptables} · Node.js ${nodeVersion} · process ${pid}</p>
<dl class="tiles">
${node.families.map((family) => familyTile(family, now))}
${apiTile(node)}
${tile('Active', whole(totals.active), 'plain', `${amount(rates.connections)} new/s`)}
${tile('In', `${bytes(rates.receivedBytes)}/s`, 'plain', `${bytes(totals.receivedBytes)} so far`)}
${tile('Out', `${bytes(rates.sentBytes)}/s`, 'plain', `${bytes(totals.sentBytes)} so far`)}
${tile('Failures', `${amount(rates.failures)}/s`, rates.failures > 0 ? 'warn' : 'good', `${whole(totals.retries)} retries so far`)}
${tile('Loop delay', span(node.loopDelayMs.p99), node.loopDelayMs.p99 > LATE_LOOP_MS ? 'warn' : 'plain', `p99; peak ${span(node.loopDelayMs.max)}`)}
${tile('Memory', mebibytes(node.memory.rss), 'plain', `heap ${mebibytes(node.memory.heapUsed)}`)}
${tile('Descriptors', whole(open), hasManyOpen(node.descriptors) ? 'warn' : 'plain', limit === undefined ? 'open' : `of ${whole(limit)}`)}
</dl>${drained(node)}`;
}

/** The title's mark: one word for the whole. */
export function healthMark({ healthy }: NodeView): Html {
  return html`<span class="mark ${healthy ? 'good' : 'bad'}">${healthy ? 'healthy' : 'unhealthy'}</span>`;
}

export function plots(history: readonly HistorySample[]): Html {
  const perSecond = (value: number) => `${amount(value)}/s`;
  return html`${[
    plot(
      {
        title: 'New connections',
        lines: [{ name: '', color: 'a', of: ({ connections }) => connections }],
        show: perSecond,
      },
      history,
    ),
    plot(
      {
        title: 'Bytes',
        lines: [
          { name: 'in', color: 'a', of: ({ receivedBytes }) => receivedBytes },
          { name: 'out', color: 'b', of: ({ sentBytes }) => sentBytes },
        ],
        show: (value) => `${bytes(value)}/s`,
      },
      history,
    ),
    plot(
      { title: 'Failures', lines: [{ name: '', color: 'c', of: ({ failures }) => failures }], show: perSecond },
      history,
    ),
  ]}`;
}

function tile(name: string, value: Content, mood: Mood, note: Content): Html {
  return html`<div class="${mood}"><dt>${name}</dt><dd><b>${value}</b> <span>${note}</span></dd></div>`;
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

function apiTile({ api }: NodeView): Html {
  if (api === undefined) return tile('Services from', 'files', 'plain', 'no API server');
  if (api.connected) return tile('API server', 'connected', 'good', 'watching');
  return tile('API server', 'lost', 'bad', `nothing for ${span(api.staleForMs)}; the last state is served`);
}

function drained({ drained: endpoints }: NodeView): Html | undefined {
  if (endpoints.length === 0) return undefined;
  return html`<p class="warn">Drained by an operator: ${endpoints.slice(0, 20).join(', ')}${
    endpoints.length > 20 ? ` and ${endpoints.length - 20} more` : ''
  }</p>`;
}
