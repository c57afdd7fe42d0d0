import { existsSync, readFileSync } from 'node:fs';
import { type Address, familyOf, type IpFamily } from '../model/address.ts';
import { routeInterface } from './route-interface.ts';

const ROUTES: Readonly<Record<IpFamily, string>> = { IPv4: '/proc/net/route', IPv6: '/proc/net/ipv6_route' };
const BRIDGED: Readonly<Record<IpFamily, string>> = {
  IPv4: '/proc/sys/net/bridge/bridge-nf-call-iptables',
  IPv6: '/proc/sys/net/bridge/bridge-nf-call-ip6tables',
};

export interface Arrival {
  /** `undefined` when it cannot be told. */
  readonly interfaceName: string | undefined;
  /** By a port of a bridge whose packets pass iptables. */
  readonly isBridged: boolean;
}

/** How packets from another machine or a pod come to this one. */
export function arrivalFrom(client: Address): Arrival {
  const family = familyOf(client);
  const interfaceName = routeInterface(read(ROUTES[family]), client);
  const isBridge = interfaceName !== undefined && existsSync(`/sys/class/net/${interfaceName}/bridge`);
  return { interfaceName, isBridged: isBridge && read(BRIDGED[family]).trim() === '1' };
}

/** Empty where it is not there. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
