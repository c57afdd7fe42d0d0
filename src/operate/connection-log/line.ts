import type { ConnectionEntry, Ending, FailedTry, Tries } from '../../model/connection-log.ts';
import { endpointName } from '../../model/endpoint.ts';
import { printable } from '../../util/text.ts';
import { rfc3339 } from '../../util/timestamp.ts';

/* The lines of the connection log. docs/commands.md explains their fields, whose meaning never changes. */

export interface EntryLine {
  readonly ts: string;
  readonly svc: string;
  readonly proto: string;
  readonly client?: string | undefined;
  readonly backend?: string | undefined;
  readonly end: Ending;
  readonly received: number;
  readonly sent: number;
  readonly began: string;
  readonly ms: number;
  readonly waited?: number;
  readonly retries: number;
  readonly failed?: readonly FailedTry[];
  readonly more_failed?: Tries['moreFailed'];
}

/** In place of entries that were dropped. */
export interface MissingLine {
  readonly ts: string;
  readonly missing: number;
}

export type LogLine = EntryLine | MissingLine;

/** A line of JSON, with its newline. */
export function entryLine(entry: ConnectionEntry): string {
  const { name, protocol, client, backend, ending, endedAt, durationMs, receivedBytes, sentBytes, tries } = entry;
  const { waitedMs } = entry;
  const { retries, failed, moreFailed } = tries;
  return lineText({
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
    ...(waitedMs !== undefined && { waited: Number(waitedMs.toFixed(3)) }),
    retries,
    ...(failed.length > 0 && { failed }),
    ...(moreFailed && { more_failed: moreFailed }),
  });
}

export function missingLine(count: number, at: number): string {
  return lineText({ ts: rfc3339(at), missing: count });
}

export function lineText(line: LogLine): string {
  // JSON leaves two characters that end a line for some readers (U+2028 and U+2029).
  return `${printable(JSON.stringify(line))}\n`;
}
