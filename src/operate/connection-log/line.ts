import type { ConnectionEntry } from '../../model/connection-log.ts';
import { endpointName } from '../../model/endpoint.ts';
import { printable } from '../../util/text.ts';
import { rfc3339 } from '../../util/timestamp.ts';

/* The lines of the connection log. docs/commands.md explains their fields, whose meaning never changes. */

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
