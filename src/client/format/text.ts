import { printable } from '../../model/printable.ts';

/** All that is not Latin: it may be two columns wide, or none. */
const OF_UNKNOWN_WIDTH = /[^\u0020-\u007e\u00a1-\u024f]/gu;

/** Text in which every character takes one column: anything else becomes an escape or `?`. */
export function oneColumnEach(text: string): string {
  return printable(text).replace(OF_UNKNOWN_WIDTH, '?');
}

/** Exactly `width` columns: padded, or cut with a sign that it was. `text` has one column for each character. */
export function fit(text: string, width: number, align: 'left' | 'right', ellipsis: string): string {
  if (text.length <= width) return align === 'left' ? text.padEnd(width) : text.padStart(width);
  return width <= 0 ? '' : `${text.slice(0, width - 1)}${ellipsis}`;
}

/** The same for a name, of which the beginning and the end tell most: what is cut out is the middle. */
export function fitName(name: string, width: number, ellipsis: string): string {
  if (name.length <= width || width <= 0) return fit(name, width, 'left', ellipsis);
  const end = Math.ceil((width - 1) / 2);
  return `${name.slice(0, width - 1 - end)}${ellipsis}${name.slice(name.length - end)}`;
}
