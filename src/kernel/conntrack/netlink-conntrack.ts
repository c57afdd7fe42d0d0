import type { Address, IpFamily } from '../../model/address.ts';
import type { Conntrack, UdpFlows } from '../../model/conntrack.ts';
import type { KernelEntry } from './ctnetlink.ts';
import { CtnetlinkDeletion, CtnetlinkWalk } from './ctnetlink-socket.ts';
import { commonPortOf, FAMILIES, familiesOf, type IsStale, leadingTo, staleness } from './stale.ts';

export interface NetlinkConntrackOptions {
  /** This node's addresses of both families, asked for at each deletion. */
  readonly localAddresses: () => Iterable<Address>;
}

/** Talks to nf_conntrack_netlink itself. Needs CAP_NET_ADMIN, as iptables does. */
export class NetlinkConntrack implements Conntrack {
  readonly #localAddresses: () => Iterable<Address>;

  constructor({ localAddresses }: NetlinkConntrackOptions) {
    this.#localAddresses = localAddresses;
  }

  async deleteUdp(flows: readonly UdpFlows[]): Promise<number> {
    const isStale = staleness(flows, new Set(this.#localAddresses()));
    return await sweepAll(familiesOf(flows), commonPortOf(flows), isStale);
  }

  async deleteUdpTo(localPorts: ReadonlySet<number>): Promise<number> {
    return await sweepAll(FAMILIES, undefined, leadingTo(localPorts, new Set(this.#localAddresses())));
  }
}

async function sweepAll(families: Iterable<IpFamily>, port: number | undefined, isStale: IsStale): Promise<number> {
  let deleted = 0;
  for (const family of families) {
    const walk = new CtnetlinkWalk(family, port);
    try {
      deleted += await sweep(walk, family, isStale);
    } finally {
      walk.close();
    }
  }
  return deleted;
}

/**
 * Deletes while it reads. That disturbs no walk, and whatever comes into being behind it is right: rules were installed
 * before it began.
 */
async function sweep(walk: CtnetlinkWalk, family: IpFamily, isStale: IsStale): Promise<number> {
  const deletion = new CtnetlinkDeletion(family);
  try {
    let deleted = 0;
    for (let isDone = false; !isDone; ) {
      const stale: KernelEntry[] = [];
      isDone = await walk.step((entry) => {
        if (isStale(entry)) stale.push(entry);
      });
      deleted += deletion.delete(stale);
    }
    return deleted;
  } finally {
    deletion.close();
  }
}
