import { printable } from '../../model/printable.ts';
import type { Frame, Size, Style } from './frame.ts';

/** A terminal that shows frames and sends keys. */
export interface Screen {
  readonly size: () => Size;
  /** Shows a frame of that size; writes only the lines that are not there already. */
  show(frame: Frame): void;
  /** Forgets what is there, as after a resize. */
  clear(): void;
}

/** Select graphic rendition (ECMA-48 8.3.117); the colours are the user's. */
const SGR: Readonly<Record<Style, string>> = {
  plain: '',
  heading: '7',
  selected: '30;46',
  good: '32',
  warning: '33',
  bad: '1;31',
  faint: '2',
};

const ESC = '\u001b[';
/** The alternate screen, without a cursor, and without lines that wrap. */
export const ENTER = `${ESC}?1049h${ESC}?25l${ESC}?7l${ESC}2J`;
export const LEAVE = `${ESC}?7h${ESC}?25h${ESC}?1049l`;

/** Writes frames to a terminal that understands ECMA-48 and xterm's alternate screen. */
export class AnsiScreen implements Screen {
  readonly size: () => Size;
  readonly #write: (text: string) => void;
  readonly #hasColours: boolean;
  #lines: string[] = [];

  constructor(options: {
    readonly size: () => Size;
    readonly write: (text: string) => void;
    readonly hasColours: boolean;
  }) {
    this.size = options.size;
    this.#write = options.write;
    this.#hasColours = options.hasColours;
  }

  show(frame: Frame): void {
    const lines = frame.map((line) => line.map(({ text, style }) => this.#painted(text, style)).join(''));
    const changed = lines.flatMap((text, row) => (text === this.#lines[row] ? [] : [`${ESC}${row + 1};1H${text}`]));
    this.#lines = lines;
    // In one piece, so that no half of it is seen.
    if (changed.length > 0) this.#write(changed.join(''));
  }

  clear(): void {
    this.#lines = [];
    this.#write(`${ESC}2J`);
  }

  /** No text of a frame steers the terminal, whoever has answered. */
  #painted(given: string, style: Style): string {
    const text = printable(given);
    const isColour = style === 'good' || style === 'warning' || style === 'bad';
    const sgr =
      style === 'selected' && !this.#hasColours ? SGR.heading : isColour && !this.#hasColours ? '' : SGR[style];
    return sgr === '' ? text : `${ESC}${sgr}m${text}${ESC}m`;
  }
}
