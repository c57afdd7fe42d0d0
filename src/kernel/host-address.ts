import { readFileSync } from 'node:fs';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { type Address, type IpFamily, parseAddress, specialAddressReason } from '../model/address.ts';
import { defaultRouteInterfaces, defaultRouteInterfaces6 } from './default-route.ts';

/** As `os.networkInterfaces` gives them: only interfaces that are up. */
export type Interfaces = Readonly<Partial<Record<string, readonly NetworkInterfaceInfo[]>>>;

export interface HostAddress {
  readonly address: Address;
  readonly interfaceName: string;
  /** No default route led to an address, so any other that is not loopback was taken: worth a warning. */
  readonly isFallback: boolean;
}

/**
 * The node's own address of a family, which rules for the node's own clients lead to: the first global one of the
 * interface that the default route leaves by, as upstream's `ChooseHostInterface`. `routes`: the text of
 * `/proc/net/route`, or of `/proc/net/ipv6_route`. Upstream gives up without a default route;
 * an isolated node can still be served. `undefined` when the node has no address but loopback and link-local ones.
 */
export function chooseHostAddress(
  routes: string,
  interfaces: Interfaces,
  family: IpFamily = 'IPv4',
): HostAddress | undefined {
  const routed = family === 'IPv4' ? defaultRouteInterfaces(routes) : defaultRouteInterfaces6(routes);
  // An interface may be called "constructor".
  const infos = new Map(Object.entries(interfaces));
  for (const interfaceName of [...routed, ...infos.keys()]) {
    const address = addressesOf(infos.get(interfaceName), family).find(isGlobal);
    if (address !== undefined) return { address, interfaceName, isFallback: !routed.includes(interfaceName) };
  }
  return undefined;
}

/** {@link chooseHostAddress} of this machine, as it is now. */
export function hostAddress(family: IpFamily): HostAddress | undefined {
  return chooseHostAddress(readRoutes(family), networkInterfaces(), family);
}

/** Every address of a family that this machine's interfaces have which are up, loopback included. */
export function localAddresses(family: IpFamily): Address[] {
  return Object.values(networkInterfaces()).flatMap((infos) => addressesOf(infos, family));
}

/** The same of both families. */
export function allLocalAddresses(): Address[] {
  return [...localAddresses('IPv4'), ...localAddresses('IPv6')];
}

function addressesOf(infos: readonly NetworkInterfaceInfo[] | undefined, family: IpFamily): Address[] {
  return (infos ?? []).flatMap((info) => (info.family === family ? (parseAddress(info.address) ?? []) : []));
}

function isGlobal(address: Address): boolean {
  return specialAddressReason(address) === undefined;
}

function readRoutes(family: IpFamily): string {
  try {
    return readFileSync(family === 'IPv4' ? '/proc/net/route' : '/proc/net/ipv6_route', 'utf8');
  } catch {
    // A kernel without it, or a sealed /proc: the same as no default route, and the caller warns of the fallback.
    return '';
  }
}
