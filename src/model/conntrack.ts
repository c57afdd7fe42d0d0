import type { Address, IpFamily } from './address.ts';

/** Where clients send to: the entries of connection tracking that have this as their original destination. */
export interface UdpFlows {
  /** Missing for a NodePort: any address of this node. */
  readonly destination?: Address;
  /** Of a NodePort's entries; missing: both, where they lead to the same. */
  readonly family?: IpFamily;
  readonly port: number;
  /** Entries that NAT leads to this local port are right, and stay. Missing when no rule leads anywhere any more. */
  readonly keepLocalPort?: number;
}

/**
 * The kernel's memory of flows. Rules are looked up for the first packet of an entry only, and a client that never
 * rests keeps its UDP entry for ever: whatever it remembers of the time before a change of rules must go.
 */
export interface Conntrack {
  /**
   * Deletes the UDP entries to any of `flows`, but those that one of them keeps; everything else is left alone. To be
   * called when the rules have been installed, with all the flows of one change together: it costs one walk through the
   * kernel's table. Resolves with how many went. Rejects with an Error that says what to do; what went until then is gone.
   */
  deleteUdp(flows: readonly UdpFlows[]): Promise<number>;
  /** The same with the UDP entries that NAT leads to any of these ports of this node. */
  deleteUdpTo(localPorts: ReadonlySet<number>): Promise<number>;
}
