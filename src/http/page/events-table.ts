import type { EventView } from '../../model/view.ts';
import { rfc3339 } from '../../util/timestamp.ts';
import { type Html, html } from './html.ts';

const SHOWN = 50;

/** Newest first. */
export function eventsTable(events: readonly EventView[]): Html {
  if (events.length === 0) return html`<p class="dim">Nothing has happened yet.</p>`;
  return html`<div class="scroll"><table class="events"><thead><tr><th scope="col">Time (UTC)</th><th scope="col">Level</th><th scope="col">What</th></tr></thead>
<tbody>${events
    .slice(-SHOWN)
    .reverse()
    .map(
      ({ id, at, level, message, fields }) =>
        html`<tr id="event-${id}"><td>${timeOf(at)}</td><td><span class="level ${level}">${level}</span></td><td>${message} ${Object.entries(
          fields,
        ).map(([key, value]) => html`<span class="field"><i>${key}</i>${String(value)}</span> `)}</td></tr>`,
    )}</tbody></table></div>`;
}

/** "2026-11-20 13:04:59" */
function timeOf(ms: number): string {
  return rfc3339(ms).slice(0, 19).replace('T', ' ');
}
