import { stripVTControlCharacters } from 'node:util';

/**
 * Takes the place of the package of that name, by which yargs lays out the help. The real one knows the width of every
 * emoji, and makes a table of them for it: 28 ms and 3 MB of each start. Our help has none.
 */
export default function stringWidth(text: string): number {
  return stripVTControlCharacters(text).length;
}
