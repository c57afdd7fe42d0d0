import { fit } from '../format/text.ts';

/** What text means; the screen decides how it looks. */
export type Style = 'plain' | 'heading' | 'selected' | 'good' | 'warning' | 'bad' | 'faint';

export interface Span {
  readonly text: string;
  readonly style: Style;
}

/** Its texts are together as wide as the screen. */
export type Line = readonly Span[];

/** As many lines as the screen has rows. */
export type Frame = readonly Line[];

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** Signs beyond ASCII, where the terminal has them. */
export interface Glyphs {
  readonly ellipsis: string;
  readonly ascending: string;
  readonly descending: string;
  /** From none to most. */
  readonly levels: readonly string[];
}

export const UNICODE: Glyphs = { ellipsis: '…', ascending: '▲', descending: '▼', levels: [...' ▁▂▃▄▅▆▇█'] };
export const ASCII: Glyphs = { ellipsis: '~', ascending: '^', descending: 'v', levels: [...' .:-=+*#'] };

/** Plain text has one column for each character. */
export function span(text: string, style: Style = 'plain'): Span {
  return { text, style };
}

/** The spans on one line of exactly that width: filled up with blanks, or cut at the right. */
export function line(columns: number, spans: readonly Span[], { ellipsis }: Glyphs): Line {
  const cut: Span[] = [];
  let left = columns;
  for (const { text, style } of spans) {
    if (left === 0) break;
    // Nobody misses blanks.
    const taken = text.slice(left).trim() === '' ? text.slice(0, left) : fit(text, left, 'left', ellipsis);
    cut.push({ text: taken, style });
    left -= taken.length;
  }
  return left === 0 ? cut : [...cut, span(' '.repeat(left))];
}

/** Some spans at the left and some at the right; of those at the right, whatever the left leaves room for. */
export function spread(columns: number, left: readonly Span[], right: readonly Span[], glyphs: Glyphs): Line {
  const gap = columns - widthOf(left) - widthOf(right);
  return gap < 1 ? line(columns, left, glyphs) : line(columns, [...left, span(' '.repeat(gap)), ...right], glyphs);
}

export function widthOf(spans: readonly Span[]): number {
  return spans.reduce((sum, { text }) => sum + text.length, 0);
}
