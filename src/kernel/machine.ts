import { readFileSync } from 'node:fs';
import { type Address, familyOf } from '../model/address.ts';
import { hostAddress, localAddresses } from './addresses.ts';
import { routeInterface } from './routes.ts';

/** How packets reach and leave this machine now. */
export const machine = { isLocal, departureTo, interfaceTowards };

function isLocal(address: Address): boolean {
  return isLoopback(address) || localAddresses(familyOf(address)).includes(address);
}

/** To an address that an interface has, the machine sends from that address; to the rest of 127.0.0.0/8, from lo's. */
function departureTo(address: Address) {
  const family = familyOf(address);
  if (isLocal(address)) {
    const own = localAddresses(family);
    return { source: own.find((each) => each === address) ?? own.find(isLoopback), interfaceName: 'lo' };
  }
  // By the same route as what comes in from there.
  return { source: hostAddress(family)?.address, interfaceName: interfaceTowards(address) };
}

/** The interface by which packets leave for there, and come in from there; `undefined` when it cannot be known. */
function interfaceTowards(address: Address): string | undefined {
  const routes = familyOf(address) === 'IPv4' ? '/proc/net/route' : '/proc/net/ipv6_route';
  try {
    return routeInterface(readFileSync(routes, 'utf8'), address);
  } catch {
    return undefined;
  }
}

/** The kernel takes all of 127.0.0.0/8 for its own, of which an interface names one address. */
function isLoopback(address: Address): boolean {
  return address.startsWith('127.');
}
