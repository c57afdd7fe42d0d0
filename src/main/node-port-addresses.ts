import type { Config } from '../cli/config.ts';
import { localAddresses } from '../host/host-address.ts';
import type { NodeAddress } from '../host/node-address.ts';
import type { Address, IpFamily } from '../model/address.ts';
import { cidrContains } from '../model/cidr.ts';

/** The addresses of this machine that serve NodePorts, of the served families; `undefined` for all. */
export function nodePortAddresses(
  { nodePortAddresses: cidrs, nodePortsOnPrimary }: Config,
  {
    families,
    hosts,
  }: { readonly families: readonly IpFamily[]; readonly hosts: Readonly<Record<IpFamily, NodeAddress>> },
): readonly Address[] | undefined {
  if (cidrs.length === 0 && !nodePortsOnPrimary) return undefined;
  return families.flatMap((family) => {
    const primary = nodePortsOnPrimary ? hosts[family].current() : undefined;
    return localAddresses(family).filter(
      (address) => address === primary || cidrs.some((cidr) => cidrContains(cidr, address)),
    );
  });
}
