import type { Table } from '../model/iptables.ts';
import type { ServicePortName } from '../model/service.ts';

/** A rule in one of our chains; a value, so that a refused one can be left out and traced to its Service port. */
export interface Rule {
  readonly table: Table;
  readonly chain: string;
  /** What follows `-A CHAIN `, spelled exactly as `iptables-save` prints it, so that dumps compare with `===`. */
  readonly spec: string;
  /** Absent for a rule that serves all Service ports. */
  readonly owner?: ServicePortName;
}
