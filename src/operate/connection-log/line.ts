import type { ConnectionEntry, FailedTry } from '../../model/connection-log.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { printable } from '../../util/text.ts';
import { rfc3339 } from '../../util/timestamp.ts';

/* The lines of the connection log. docs/operations.md explains their fields, whose meaning never changes. */

/** A line of JSON, with its newline. */
export function entryLine(entry: ConnectionEntry): string {
  const { name, protocol, client, backend, ending, endedAt, durationMs, receivedBytes, sentBytes, tries } = entry;
  const { retries, failed, moreFailed } = tries;
  return line({
    ts: rfc3339(endedAt),
    svc: name,
    proto: protocol,
    client: client && endpointName(client),
    backend,
    end: ending,
    received: receivedBytes,
    sent: sentBytes,
    began: rfc3339(endedAt - durationMs),
    ms: Number(durationMs.toFixed(3)),
    retries,
    ...(failed.length > 0 && { failed }),
    ...(moreFailed && { more_failed: moreFailed }),
  });
}

/** In place of entries that were dropped. */
export function missingLine(count: number, at: number): string {
  return line({ ts: rfc3339(at), missing: count });
}

function line(fields: object): string {
  // JSON leaves two characters that end a line for some readers (U+2028 and U+2029).
  return `${printable(JSON.stringify(fields))}\n`;
}

/*
 * The same for people: columns for IPv4 addresses, so that a usual line fits into 120 columns. What is longer moves
 * only its own line.
 */

const CLIENT = 21;
const ENDING = 13;
const DURATION = 5;
const BYTES = 8;

export const TEXT_HEADER = columns({
  ...{ time: 'Time', protocol: 'Prot', client: 'Client', backend: 'Endpoint', ending: 'End' },
  ...{ duration: 'Took', received: 'Received', sent: 'Sent', rest: 'Service' },
});

/** `bytes`: a count in at most 8 columns. `time`: the time of day. */
export function entryText(
  entry: ConnectionEntry,
  { time, bytes }: { readonly time: (ms: number) => string; readonly bytes: (count: number) => string },
): string {
  const { name, protocol, client, backend = '-', ending, endedAt, durationMs, tries } = entry;
  return columns({
    ...{ time: time(endedAt), protocol, client: nameOf(client), backend, ending },
    ...{ duration: durationText(durationMs), received: bytes(entry.receivedBytes), sent: bytes(entry.sentBytes) },
    rest: `${name}${triesText(tries.failed, Object.values(tries.moreFailed ?? {}))}`,
  });
}

function columns(cells: Readonly<Record<Column, string>>): string {
  const { time, protocol, client, backend, ending, duration, received, sent, rest } = cells;
  const from = `${time.padEnd(8)} ${protocol.padEnd(4)} ${client.padEnd(CLIENT)} ${backend.padEnd(CLIENT)}`;
  const counts = `${received.padStart(BYTES)} ${sent.padStart(BYTES)}`;
  return printable(`${from} ${ending.padEnd(ENDING)} ${duration.padStart(DURATION)} ${counts} ${rest}`);
}

type Column = 'time' | 'protocol' | 'client' | 'backend' | 'ending' | 'duration' | 'received' | 'sent' | 'rest';

function nameOf(client: Endpoint | undefined): string {
  return client === undefined ? '-' : endpointName(client);
}

/** ", not 10.244.1.8:8080 (refused)" */
function triesText(failed: readonly FailedTry[], more: readonly number[]): string {
  if (failed.length === 0) return '';
  const count = more.reduce((sum, each) => sum + each, 0);
  const each = failed.map(({ backend, reason }) => `${backend} (${reason})`);
  return `, not ${each.join(', ')}${count > 0 ? `, and ${count} more` : ''}`;
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
