import type { ConnectionState } from '../../../model/data-plane.ts';
import { endpointName } from '../../../model/endpoint.ts';
import type { ConnectionView } from '../../../model/view.ts';
import { minutesAndSeconds } from '../format/duration.ts';

/*
 * The layout of `ipvsadm -L -c` (its `ipvsadm.c`, print_conn), with the Service's name at the end. There is room for
 * the longest IPv4 address and port; from the first line on that needs more, all have more.
 */

/** ipvs' words, as `ipvsadm` shows them. */
const STATES: Readonly<Record<ConnectionState, string>> = {
  dialling: 'SYN_SENT',
  established: 'ESTABLISHED',
  'half-closed': 'FIN_WAIT',
  flow: 'UDP',
};

const ADDRESS_COLUMN = 21;

interface Row {
  readonly start: string;
  readonly addresses: readonly string[];
  readonly name: string;
}

export const CONNECTION_HEADER = lineOf(
  { start: startOf('pro', 'expire', 'state'), addresses: ['source', 'virtual', 'destination'], name: 'service' },
  ADDRESS_COLUMN,
);

/** Makes the lines of a list piece by piece. */
export class ConnectionLines {
  #addressColumn = ADDRESS_COLUMN;

  of(piece: readonly ConnectionView[]): string[] {
    const rows = piece.map(rowOf);
    for (const { addresses } of rows) {
      for (const { length } of addresses) this.#addressColumn = Math.max(this.#addressColumn, length);
    }
    return rows.map((row) => lineOf(row, this.#addressColumn));
  }
}

function rowOf({ name, protocol, client, virtual, endpoint, state, expiresMs }: ConnectionView): Row {
  return {
    start: startOf(protocol, expiresMs === undefined ? '-' : minutesAndSeconds(expiresMs), STATES[state]),
    addresses: [endpointName(client), endpointName(virtual), endpoint === undefined ? '-' : endpointName(endpoint)],
    name,
  };
}

function startOf(protocol: string, expire: string, state: string): string {
  return `${protocol.padEnd(3)} ${expire.padEnd(6)} ${state.padEnd(11)}`;
}

function lineOf({ start, addresses, name }: Row, addressColumn: number): string {
  return [start, ...addresses.map((address) => address.padEnd(addressColumn)), name].join(' ');
}
