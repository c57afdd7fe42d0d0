import { printable } from '../../../util/text.ts';

/** All that is not Latin: it may be two columns wide, or none. */
const OF_UNKNOWN_WIDTH = /[^\u0020-\u007e\u00a1-\u024f]/gu;

/** Text in which every character takes one column: anything else becomes an escape or `?`. */
export function oneColumnEach(text: string): string {
  return printable(text).replace(OF_UNKNOWN_WIDTH, '?');
}
