import { readFileSync } from 'node:fs';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import { type Address, parseAddress, specialAddressReason } from '../model/address.ts';
import { defaultRouteInterfaces } from './default-route.ts';

/** As `os.networkInterfaces` gives them: only interfaces that are up. */
export type Interfaces = Readonly<Partial<Record<string, readonly NetworkInterfaceInfo[]>>>;

export interface HostAddress {
  readonly address: Address;
  readonly interfaceName: string;
  /** No default route led to an address, so any other that is not loopback was taken: worth a warning. */
  readonly isFallback: boolean;
}

/**
 * The node's own IPv4 address, which rules for the node's own clients lead to: the first global one of the interface
 * that the default route leaves by, as upstream's `ChooseHostInterface`. Upstream gives up without a default route;
 * an isolated node can still be served. `undefined` when the node has no address but loopback and link-local ones.
 */
export function chooseHostAddress(procNetRoute: string, interfaces: Interfaces): HostAddress | undefined {
  const routed = defaultRouteInterfaces(procNetRoute);
  // An interface may be called "constructor".
  const infos = new Map(Object.entries(interfaces));
  for (const interfaceName of [...routed, ...infos.keys()]) {
    const address = (infos.get(interfaceName) ?? []).map(ipv4Of).find(isGlobal);
    if (address !== undefined) return { address, interfaceName, isFallback: !routed.includes(interfaceName) };
  }
  return undefined;
}

/** {@link chooseHostAddress} of this machine, as it is now. */
export function hostAddress(): HostAddress | undefined {
  return chooseHostAddress(readRoutes(), networkInterfaces());
}

/** Every IPv4 address of this machine's interfaces that are up, loopback included. */
export function localIPv4Addresses(): Address[] {
  return Object.values(networkInterfaces())
    .flatMap((infos) => infos ?? [])
    .map(ipv4Of)
    .filter((address) => address !== undefined);
}

function ipv4Of(info: NetworkInterfaceInfo): Address | undefined {
  return info.family === 'IPv4' ? parseAddress(info.address) : undefined;
}

function isGlobal(address: Address | undefined): address is Address {
  return address !== undefined && specialAddressReason(address) === undefined;
}

function readRoutes(): string {
  try {
    return readFileSync('/proc/net/route', 'utf8');
  } catch {
    // A kernel without it, or a sealed /proc: the same as no default route, and the caller warns of the fallback.
    return '';
  }
}
