import { HISTORY_MS, type HistorySample } from '../../model/view.ts';
import { type Html, html } from './html.ts';

const WIDTH = 300;
const HEIGHT = 60;

export interface Plot {
  readonly title: string;
  readonly lines: readonly {
    readonly name: string;
    readonly color: string;
    readonly of: (sample: HistorySample) => number;
  }[];
  readonly show: (value: number) => string;
}

/** The last fifteen minutes as a small picture, the newest at the right; what the program is too young for stays empty. */
export function plot({ title, lines, show }: Plot, history: readonly HistorySample[]): Html {
  const newest = history.at(-1);
  const top = Math.max(...history.flatMap((sample) => lines.map(({ of }) => of(sample))), 0);
  const points = (of: (sample: HistorySample) => number) =>
    history
      .map((sample) => {
        const x = WIDTH * (1 - ((newest?.at ?? 0) - sample.at) / HISTORY_MS);
        const y = top === 0 ? HEIGHT : HEIGHT - (of(sample) / top) * (HEIGHT - 2);
        return `${x.toFixed(1)},${y.toFixed(1)}`;
      })
      .join(' ');
  const values = lines.map(({ name, of }) => `${name} ${newest === undefined ? '–' : show(of(newest))}`.trim());
  return html`<figure><figcaption><b>${title}</b> ${lines.map(
    ({ color }, index) => html`<span class="key ${color}">${values[index]}</span> `,
  )}<span class="dim">peak ${show(top)}</span></figcaption>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title} over the last fifteen minutes: now ${values.join(', ')}; peak ${show(top)}">${lines.map(
    ({ color, of }) => html`<polyline class="${color}" points="${points(of)}"/>`,
  )}</svg></figure>`;
}
