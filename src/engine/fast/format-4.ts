import { type Endpoint, endpointName, type NamedEndpoint } from '../../model/endpoint.ts';
import type { PortState, Unpacked } from './parcels.ts';

/*
 * Reads parcels of format 4, so that its users upgrade without losing connections. Version 0.2.0 may delete this file,
 * the `surplus` of parcels, the 4 in src/upgrade/protocol.ts and test/golden/hand-over-4.json.
 */

/** A busy UDP port had further sockets, which shared its clients with the first. Endpoints had no name. */
interface PortState4 extends PortState {
  readonly moreFds?: readonly number[];
}

/** `surplus`: descriptors that nothing uses any more. */
export interface Upgraded extends Unpacked {
  readonly surplus: readonly number[];
}

/**
 * In this program's format, whichever of the two it is in. Counters that are missing are 0. Datagrams that wait for the
 * flow of another worker find it at the home of their port, as flows of all workers come before them.
 */
export function upgraded({ ports, records }: Unpacked): Upgraded {
  return {
    ports: ports.map(({ moreFds: _, backends: { endpoints, draining, ...backends }, picker, ...port }: PortState4) => ({
      ...port,
      backends: { ...backends, endpoints: endpoints.map(named), ...(draining && { draining: draining.map(named) }) },
      picker: picker && { ...picker, order: picker.order.map(named) },
    })),
    records: records.map((record) =>
      record.kind === 'established' || record.kind === 'flow'
        ? { ...record, endpoint: named(record.endpoint) }
        : record,
    ),
    surplus: ports.flatMap(({ moreFds = [] }: PortState4) => moreFds),
  };
}

function named<Each extends Endpoint>(endpoint: Each): Each & NamedEndpoint {
  return { ...endpoint, name: endpointName(endpoint) };
}
