import type { Address, IpFamily } from './address.ts';
import type { ProxiedProtocol } from './service-port.ts';

/** The conntrack entries with this original destination. */
export interface OriginalDestination {
  /** Absent for a NodePort: any address of this node. */
  readonly destination?: Address;
  /** Of a NodePort's entries; absent: both. */
  readonly family?: IpFamily;
  readonly port: number;
}

/** UDP flows to a destination, of which those to these local ports are right. */
export interface StaleFlows {
  readonly destination: OriginalDestination;
  readonly keep: readonly number[];
}

export interface UdpFlows extends OriginalDestination {
  /** Entries that NAT sends to this local port are right, and stay. Absent when none is right. */
  readonly keepLocalPort?: number;
}

/**
 * Rules apply to the first packet of an entry only, and a client that never pauses keeps its UDP entry for ever. So
 * entries that a change of rules makes wrong must be deleted.
 */
export interface Conntrack {
  /**
   * Deletes the UDP entries to any of `flows` that none of them keeps, and resolves with their number. Call it after
   * the rules are installed, once per change: it walks the kernel's whole table. When it rejects, some are deleted.
   */
  deleteUdp(flows: readonly UdpFlows[]): Promise<number>;
  /**
   * Deletes the entries that NAT sends to any of these local ports, but not those of TCP connections that are open in
   * both directions: they may go on after their Service port has gone, and no new connection can take their place.
   */
  deleteTo(protocol: ProxiedProtocol, localPorts: ReadonlySet<number>, families?: readonly IpFamily[]): Promise<number>;
  /**
   * Deletes the entries of TCP to any of these that NAT left as they are and nobody has answered. They were made while
   * rules were missing, and the client's next packet would take the same way.
   */
  deleteMissed(destinations: readonly OriginalDestination[]): Promise<number>;
  /** Deletes the entries with this mark: those that show endpoints the addresses of clients (docs/adr/0023). */
  deleteMarked(mark: number): Promise<number>;
}
