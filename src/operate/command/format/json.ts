import { printable } from '../../../util/text.ts';

/**
 * A JSON document of several lines, in which nothing steers a terminal: `JSON.stringify` escapes less than all of
 * that.
 */
export function printableJson(value: unknown): string {
  const lines = JSON.stringify(value, undefined, 2).split('\n');
  return `${lines.map(printable).join('\n')}\n`;
}
