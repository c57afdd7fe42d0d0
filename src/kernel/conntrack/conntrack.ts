import { type Address, FAMILIES, type IpFamily } from '../../model/address.ts';
import type { Conntrack, OriginalDestination, UdpFlows } from '../../model/conntrack.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { commonPortOf, type EntryFilter, familiesOf, type IsStale, missed, redirectedTo, staleness } from './stale.ts';

/** Reads and deletes entries through netlink. Needs CAP_NET_ADMIN, as iptables does. */
export class NetlinkConntrack implements Conntrack {
  readonly #log: Log;
  /** This node's addresses of both families, read at each deletion. */
  readonly #localAddresses: () => Iterable<Address>;
  #isWarned = false;

  constructor({ log, localAddresses }: { readonly log: Log; readonly localAddresses: () => Iterable<Address> }) {
    this.#log = log;
    this.#localAddresses = localAddresses;
  }

  async deleteUdp(flows: readonly UdpFlows[]): Promise<number> {
    const isStale = staleness(flows, new Set(this.#localAddresses()));
    return await this.#delete(familiesOf(flows), { protocol: 'UDP', port: commonPortOf(flows) }, isStale);
  }

  async deleteTo(
    protocol: ProxiedProtocol,
    localPorts: ReadonlySet<number>,
    families: readonly IpFamily[] = FAMILIES,
  ): Promise<number> {
    const isStale = redirectedTo(localPorts, new Set(this.#localAddresses()));
    return await this.#delete(families, { protocol }, isStale);
  }

  async deleteMissed(destinations: readonly OriginalDestination[]): Promise<number> {
    const isStale = missed(destinations, new Set(this.#localAddresses()));
    return await this.#delete(familiesOf(destinations), { protocol: 'TCP', port: commonPortOf(destinations) }, isStale);
  }

  async deleteMarked(mark: number): Promise<number> {
    const kept = await import('./kept.ts').catch(() => undefined);
    // Where they cannot be made, there are none.
    if (kept === undefined || kept.probeKeptEntries('IPv4') !== undefined) return 0;
    return await kept.deleteKeptEntries(mark);
  }

  async #delete(families: Iterable<IpFamily>, among: EntryFilter, isStale: IsStale): Promise<number> {
    // Loaded here, because the node engine also runs where koffi's addon cannot be loaded.
    const ctnetlink = await import('./ctnetlink.ts').catch((error: unknown) => this.#warn(messageOf(error)));
    let deleted = 0;
    if (ctnetlink !== undefined) {
      for (const family of families) deleted += await ctnetlink.deleteStaleEntries(family, among, isStale);
    }
    return deleted;
  }

  #warn(err: string): undefined {
    if (this.#isWarned) return;
    this.#isWarned = true;
    this.#log.warn(
      'Cannot clear UDP entries of connection tracking: a client that keeps sending from one port keeps its old path ' +
        'until it pauses for nf_conntrack_udp_timeout',
      { err },
    );
  }
}
