import type { IpFamily } from '../../model/address.ts';

/**
 * Lets what our table has marked pass a firewall in the tables of iptables: an ACCEPT in one table of nf_tables does
 * not end another one's DROP (docs/adr/0016, 0039). All reject with a `CaptureError`.
 */
export interface Firewall {
  /** Where the tables of iptables have rules or a policy for incoming packets, a rule comes before them; else none. */
  letIn(family: IpFamily): Promise<void>;
  /** Whether the rule is still where {@link letIn} has put it. */
  isIntact(family: IpFamily): Promise<boolean>;
  remove(family: IpFamily): Promise<void>;
}
