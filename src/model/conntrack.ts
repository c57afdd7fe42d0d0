import type { Address, IpFamily } from './address.ts';

/** The entries of connection tracking with this original destination. */
export interface UdpFlows {
  /** Missing for a NodePort: any address of this node. */
  readonly destination?: Address;
  /** Of a NodePort's entries; missing: both. */
  readonly family?: IpFamily;
  readonly port: number;
  /** Entries that NAT leads to this local port are right, and stay. Missing when none is right. */
  readonly keepLocalPort?: number;
}

/**
 * The kernel's memory of flows. Rules apply to the first packet of an entry only, and a client that never pauses keeps
 * its UDP entry for ever. So entries that a change of rules makes wrong must be deleted.
 */
export interface Conntrack {
  /**
   * Deletes the UDP entries to any of `flows` that none of them keeps. Call it once the rules are installed, with all
   * flows of one change together, because it walks through the kernel's whole table. Resolves with the number of
   * deleted entries. Rejects with an Error that says what to do; some entries may be deleted by then.
   */
  deleteUdp(flows: readonly UdpFlows[]): Promise<number>;
  /** Deletes the UDP entries that NAT leads to any of these ports of this node. */
  deleteUdpTo(localPorts: ReadonlySet<number>): Promise<number>;
}
