import type { Address } from '../../model/address.ts';
import type { Conntrack } from '../../model/conntrack.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import type { Exec } from '../iptables/exec.ts';
import { NoConntrack } from './no-conntrack.ts';
import { hasConntrackTool, ToolConntrack } from './tool-conntrack.ts';

export interface ConntrackSetup {
  readonly clock: Clock;
  readonly log: Log;
  readonly exec: Exec;
  /** This node's addresses of both families, asked for at each deletion. */
  readonly localAddresses: () => Iterable<Address>;
}

/** Speaks to the kernel where system calls can be made, else through the `conntrack` program where that is installed. */
export async function createConntrack(setup: ConntrackSetup): Promise<Conntrack> {
  try {
    // Not before it is wanted: koffi's addon need not load where only the node engine runs.
    const { NetlinkConntrack } = await import('./netlink-conntrack.ts');
    return new NetlinkConntrack(setup);
  } catch (error) {
    if (await hasConntrackTool(setup.exec)) return new ToolConntrack(setup);
    return new NoConntrack(setup.log, messageOf(error));
  }
}
