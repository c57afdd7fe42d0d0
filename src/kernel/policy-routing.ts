import type { Address, Cidr, IpFamily } from '../model/address.ts';
import { ipText } from '../util/ip-bytes.ts';

/** The sources for which this machine has rules of policy routing (`ip rule`). Throws a `SysError`. */
export type FindRoutedApart = (family: IpFamily) => readonly Cidr[];

export async function routedApartFinder(): Promise<FindRoutedApart> {
  // Loaded here, because the node engine also runs where koffi's addon cannot be loaded. Then no address is kept.
  const netlink = await import('../sys/netlink.ts').catch(() => undefined);
  if (netlink === undefined) return () => [];
  return (family) =>
    netlink
      .ruleSources(family)
      .map(({ network, prefixLength }) => ({ network: ipText(network) as Address, prefixLength }));
}
