/* HTML that cannot contain unescaped text, and numbers for people. */

/** Text that is HTML already. Only {@link html} should make it, so that no text gets into a page unescaped. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

export type Content = Html | string | number | undefined | readonly Content[];

/** Fills a template. Escapes what is not {@link Html}; `undefined` is nothing. Attributes need quotes. */
export function html(parts: TemplateStringsArray, ...contents: readonly Content[]): Html {
  return new Html(String.raw({ raw: parts }, ...contents.map(textOf)));
}

function textOf(content: Content): string {
  if (content instanceof Html) return content.text;
  if (typeof content === 'string') return content.replace(/[&<>"']/g, (each) => ENTITIES[each] ?? '');
  if (typeof content === 'number') return String(content);
  return content === undefined ? '' : content.map(textOf).join('');
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

const UNITS = ['', 'k', 'M', 'G', 'T', 'P'];

/** "0", "0.4", "17", "1.0 k", "350 M": two or three digits, in steps of 1000. */
export function amount(value: number, unit = ''): string {
  let scaled = value;
  let power = 0;
  // 999.5 would be rounded to four digits.
  while (scaled >= 999.5 && power < UNITS.length - 1) {
    scaled /= 1_000;
    power++;
  }
  const hasFraction = scaled < 9.95 && (power > 0 || scaled !== Math.round(scaled));
  const digits = hasFraction ? scaled.toFixed(1) : String(Math.round(scaled));
  return `${digits} ${UNITS[power]}${unit}`.trimEnd();
}

export function bytes(value: number): string {
  return amount(value, 'B');
}

/** In binary units, as memory is counted: "87 MiB". */
export function mebibytes(value: number): string {
  return `${Math.round(value / 2 ** 20)} MiB`;
}

/** A number in full: "12,345". */
export function whole(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

const SPANS: readonly (readonly [below: number, unitMs: number, unit: string])[] = [
  [999.5, 1, 'ms'],
  [90_000, 1_000, 's'],
  [90 * 60_000, 60_000, 'min'],
  [36 * 3_600_000, 3_600_000, 'h'],
  [Number.POSITIVE_INFINITY, 86_400_000, 'd'],
];

/** "850 ms", "1.5 s", "12 s", "3 min", "5 h", "12 d". */
export function span(ms: number): string {
  const [, unitMs, unit] = SPANS.find(([below]) => ms < below) ?? [0, 1, ''];
  const count = ms / unitMs;
  const isFine = unitMs <= 1_000 && count < 9.95 && (unitMs === 1_000 || count !== Math.round(count));
  return `${isFine ? count.toFixed(1) : Math.round(count)} ${unit}`;
}

/** "just now", "12 s ago". */
export function ago(ms: number): string {
  return ms < 1_000 ? 'just now' : `${span(1_000 * Math.floor(ms / 1_000)).replace('.0', '')} ago`;
}
