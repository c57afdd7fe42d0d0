import { type Address, FAMILIES, familyOf, type IpFamily } from '../../model/address.ts';
import type { OriginalDestination, UdpFlows } from '../../model/conntrack.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';

/** Entries of one protocol, to one original destination port or to any. */
export interface EntryFilter {
  readonly protocol: ProxiedProtocol;
  readonly port?: number | undefined;
}

/** One entry of connection tracking. */
export interface Entry {
  /** Where the client sent to, before NAT. A function, because formatting the address costs time. */
  readonly destination: () => Address;
  readonly destinationPort: number;
  /** The source port of replies: the port that NAT chose, or {@link destinationPort} without NAT. */
  readonly replyPort: number;
  /** The source address of replies. */
  readonly replySource: () => Address;
  /** Whether NAT changed the destination. */
  readonly isRedirected: boolean;
  /** Of TCP: nobody has answered. */
  readonly isOpening: boolean;
  /** Of TCP: open in both directions. */
  readonly isEstablished: boolean;
}

export type IsStale = (entry: Entry) => boolean;

/** Selects the stale entries. `localAddresses`: this node's; 127.0.0.0/8 may be left out. */
export function staleness(flows: readonly UdpFlows[], localAddresses: ReadonlySet<Address>): IsStale {
  const meant = meantBy(flows, localAddresses);
  return (entry) => {
    const all = meant(entry);
    return all.length > 0 && !all.some((flow) => isKept(entry, flow));
  };
}

/** Selects those of TCP that NAT left as they are, and that nobody has answered. */
export function missed(destinations: readonly OriginalDestination[], localAddresses: ReadonlySet<Address>): IsStale {
  const meant = meantBy(destinations, localAddresses);
  return (entry) => entry.isOpening && !entry.isRedirected && meant(entry).length > 0;
}

/** Finds the destinations among these that an entry has. */
function meantBy<To extends OriginalDestination>(
  flows: readonly To[],
  localAddresses: ReadonlySet<Address>,
): (entry: Entry) => readonly To[] {
  // Many Services share a port (53): with an index by address, a walk takes time in proportion to the entries alone.
  const byPort = Map.groupBy(flows, ({ port }) => port);
  const indexes = new Map([...byPort].map(([port, some]) => [port, Map.groupBy(some, (flow) => flow.destination)]));
  const isLocal = localTo(localAddresses);

  return (entry) => {
    const index = indexes.get(entry.destinationPort);
    if (index === undefined) return [];
    const destination = entry.destination();
    const ofNodePorts = isLocal(destination) ? (index.get(undefined) ?? []) : [];
    const isOfFamily = ({ family }: OriginalDestination) => family === undefined || family === familyOf(destination);
    return [...(index.get(destination) ?? []), ...ofNodePorts.filter(isOfFamily)];
  };
}

/** Selects the entries that NAT redirects to these local ports, but for established connections. */
export function redirectedTo(localPorts: ReadonlySet<number>, localAddresses: ReadonlySet<Address>): IsStale {
  const isLocal = localTo(localAddresses);
  return ({ isRedirected, isEstablished, replyPort, replySource }) =>
    isRedirected && !isEstablished && localPorts.has(replyPort) && isLocal(replySource());
}

function localTo(localAddresses: ReadonlySet<Address>): (address: Address) => boolean {
  return (address) => localAddresses.has(address) || address.startsWith('127.');
}

function isKept({ isRedirected, replyPort }: Entry, { keepLocalPort }: UdpFlows): boolean {
  return isRedirected && replyPort === keepLocalPort;
}

/** The families that entries of `flows` can have. */
export function familiesOf(flows: readonly OriginalDestination[]): ReadonlySet<IpFamily> {
  return new Set(
    flows.flatMap(({ destination, family }) => {
      if (destination !== undefined) return familyOf(destination);
      return family ?? FAMILIES;
    }),
  );
}

/** The original destination port of all entries of `flows`, if it is the same; else `undefined`. */
export function commonPortOf(flows: readonly OriginalDestination[]): number | undefined {
  const port = flows[0]?.port;
  return flows.every((flow) => flow.port === port) ? port : undefined;
}
