import type { EntryLine } from '../operate/connection-log/line.ts';
import { largeNumber, oneColumnEach, timeOfDay } from './format.ts';

/** Above lines of {@link entryText}. */
export const ENTRY_HEADER =
  'Time     Prot Client                Endpoint              End            Took Received     Sent Service';

/**
 * An entry of the connection log for people: columns for IPv4 addresses, so that a usual line fits into 120 columns.
 * What is longer moves only its own line.
 */
export function entryText(line: EntryLine): string {
  const { ts, svc, proto, client = '-', backend = '-', end, ms, received, sent } = line;
  // biome-ignore lint/style/noRestrictedGlobals: reads a text, not the clock
  const from = `${timeOfDay(Date.parse(ts))} ${proto.padEnd(4)} ${client.padEnd(21)} ${backend.padEnd(21)}`;
  const bytes = `${largeNumber(received, false)}${largeNumber(sent, false)}`;
  const took = durationText(ms).padStart(5);
  return oneColumnEach(`${from} ${end.padEnd(13)} ${took}${bytes} ${svc}${waitText(line)}${triesText(line)}`);
}

/** ", waited 1.5s" */
function waitText({ waited }: EntryLine): string {
  return waited === undefined ? '' : `, waited ${durationText(waited)}`;
}

/** ", not 10.244.1.8:8080 (refused)" */
function triesText({ failed = [], more_failed: moreFailed = {} }: EntryLine): string {
  if (failed.length === 0) return '';
  const more = Object.values(moreFailed).reduce((sum, each) => sum + each, 0);
  const each = failed.map(({ backend, reason }) => `${backend} (${reason})`);
  return `, not ${each.join(', ')}${more > 0 ? `, and ${more} more` : ''}`;
}

/** "0.4ms", "12ms", "1.5s", "119s", "119m", "47h", "12d" */
export function durationText(ms: number): string {
  if (ms < 10) return `${(Math.floor(ms * 10) / 10).toFixed(1)}ms`;
  if (ms < 1_000) return `${Math.floor(ms)}ms`;
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  const [size, unit] = UNITS.find(([each]) => ms >= 2 * each) ?? [1_000, 's'];
  return `${Math.floor(ms / size)}${unit}`;
}

const UNITS = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'm'],
] as const;
