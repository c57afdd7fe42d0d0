import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type NetworkInterfaceInfo, networkInterfaces } from 'node:os';
import {
  type Address,
  familyOf,
  type IpFamily,
  isLoopback,
  parseAddress,
  specialAddressReason,
} from '../model/address.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { readIfThere } from './files.ts';
import { defaultRouteInterfaces, routeInterface } from './routes.ts';

/** What `os.networkInterfaces` returns: only interfaces that are up. */
type Interfaces = Readonly<Partial<Record<string, readonly NetworkInterfaceInfo[]>>>;

export interface HostAddress {
  readonly address: Address;
  readonly interfaceName: string;
  /** No default route has an address, so another address was taken: worth a warning. */
  readonly isFallback: boolean;
}

/**
 * The node's own address of a family: the first global address of the default route's interface, as upstream's
 * `ChooseHostInterface`. `routes`: the text of `/proc/net/route` or `/proc/net/ipv6_route`. Without a default route
 * upstream gives up, but an isolated node can still be served. `undefined` when the node has only loopback and
 * link-local addresses.
 */
export function chooseHostAddress(
  routes: string,
  interfaces: Interfaces,
  family: IpFamily = 'IPv4',
): HostAddress | undefined {
  const routed = defaultRouteInterfaces(routes, family);
  // A Map, because an interface may be called "constructor".
  const infos = new Map(Object.entries(interfaces));
  for (const interfaceName of [...routed, ...infos.keys()]) {
    const global = addressesOf(infos.get(interfaceName), family).find(
      (each) => specialAddressReason(each) === undefined,
    );
    if (global !== undefined) return { address: global, interfaceName, isFallback: !routed.includes(interfaceName) };
  }
  return undefined;
}

/** {@link chooseHostAddress} of this machine, as it is now. */
export function hostAddress(family: IpFamily): HostAddress | undefined {
  return chooseHostAddress(readRoutes(family), networkInterfaces(), family);
}

/** Every address of a family on the interfaces of this machine that are up, loopback included. */
export function localAddresses(family: IpFamily): Address[] {
  return Object.values(networkInterfaces()).flatMap((infos) => addressesOf(infos, family));
}

/** {@link localAddresses} of both families. */
export function allLocalAddresses(): Address[] {
  return [...localAddresses('IPv4'), ...localAddresses('IPv6')];
}

function addressesOf(infos: readonly NetworkInterfaceInfo[] | undefined, family: IpFamily): Address[] {
  return (infos ?? []).flatMap((info) => (info.family === family ? (parseAddress(info.address) ?? []) : []));
}

function readRoutes(family: IpFamily): string {
  // A kernel without the file, or a sealed /proc: the same as no default route, and the fallback is logged.
  return readIfThere(family === 'IPv4' ? '/proc/net/route' : '/proc/net/ipv6_route') ?? '';
}

/** How packets reach and leave this machine now. */
export const machine = { isLocal, departureTo, interfaceTowards };

function isLocal(address: Address): boolean {
  return isLoopback(address) || localAddresses(familyOf(address)).includes(address);
}

/** The source address and interface of packets to an address. To its own addresses, the machine sends by loopback. */
async function departureTo(address: Address) {
  const source = (await sourceTowards(address)) ?? hostAddress(familyOf(address))?.address;
  return { source, interfaceName: isLocal(address) ? 'lo' : interfaceTowards(address) };
}

/** Which port does not matter: to connect a UDP socket sends nothing. */
const ANY_PORT = 9;

/** The address that the kernel gives to a connection; `undefined` without a route. */
async function sourceTowards(address: Address): Promise<Address | undefined> {
  const socket = createSocket(familyOf(address) === 'IPv4' ? 'udp4' : 'udp6');
  try {
    socket.connect(ANY_PORT, address);
    await once(socket, 'connect');
    return parseAddress(socket.address().address);
  } catch {
    return undefined;
  } finally {
    socket.close();
  }
}

/** The interface by which packets to an address leave, and packets from it arrive; `undefined` when it is unknown. */
function interfaceTowards(address: Address): string | undefined {
  return routeInterface(readRoutes(familyOf(address)), address);
}

interface Machine {
  readonly hostAddress: () => HostAddress | undefined;
  readonly localAddresses: () => readonly Address[];
}

/**
 * The node's address of one family, which rules route to: the Node object's address, provided that this machine has it
 * (a rule to any other address would send the node's own connections away), else the default route's address. Logs each
 * choice once.
 */
export class NodeAddress {
  readonly #family: IpFamily;
  readonly #log: Log;
  readonly #machine: Machine;
  /** `undefined` while the Node object is unknown. */
  #preferred: readonly Address[] | undefined;
  #isExpected = true;
  #logged: string | undefined;

  constructor(
    family: IpFamily,
    log: Log,
    machine: Machine = { hostAddress: () => hostAddress(family), localAddresses: () => localAddresses(family) },
  ) {
    this.#family = family;
    this.#log = log;
    this.#machine = machine;
  }

  /**
   * Takes the addresses of the Node object. `isExpected`: it is worth a warning when none of them is of this family.
   */
  prefer(addresses: readonly Address[], { isExpected }: { readonly isExpected: boolean }): void {
    this.#preferred = addresses.filter((address) => familyOf(address) === this.#family);
    this.#isExpected = isExpected;
  }

  /** `undefined` on a machine that has only loopback and link-local addresses. */
  current(): Address | undefined {
    const local = new Set(this.#machine.localAddresses());
    const preferred = this.#preferred ?? [];
    const named = preferred.find((address) => local.has(address));
    if (named !== undefined) {
      this.#report('Rules route to the address of the Node object', { address: named }, false);
      return named;
    }
    const found = this.#machine.hostAddress();
    if (found === undefined) return undefined;
    const fields = { address: found.address, interface: found.interfaceName, nodeObject: preferred.join(',') };
    const isMissed = this.#isExpected && this.#preferred?.length === 0;
    let message = 'Rules route to the address of the default route';
    if (isMissed) {
      message = `The Node object names no ${this.#family} address; rules route to the address of the default route`;
    } else if (preferred.length > 0) {
      message = 'This machine has no address of its Node object; rules route to another of its addresses';
    } else if (found.isFallback) {
      message = 'No default route; rules route to another address of this node';
    }
    this.#report(message, fields, isMissed || preferred.length > 0 || found.isFallback);
    return found.address;
  }

  #report(message: string, fields: Record<string, string>, isWarning: boolean): void {
    const logged = JSON.stringify([message, fields]);
    if (this.#logged === logged) return;
    this.#logged = logged;
    if (isWarning) this.#log.warn(message, fields);
    else this.#log.v(1)?.info(message, fields);
  }
}

/** Node cannot wait for this socket. An unnecessary read takes a microsecond, so reads may be frequent. */
const LOOK_MS = 250;
/** Reading all addresses takes fifty microseconds for a few, and a millisecond for hundreds of pods' interfaces. */
const BLIND_LOOK_MS = 1_000;

/**
 * Calls `onChange`, which must not throw, when addresses, links or default routes of this machine may have changed. The
 * kernel reports changes where system calls work; elsewhere, `onChange` is called every second.
 */
export async function watchAddresses({
  clock,
  onChange,
  signal,
}: {
  readonly clock: Clock;
  readonly onChange: () => void;
  readonly signal: AbortSignal;
}): Promise<void> {
  const every = (ms: number, look: () => void): void => {
    if (signal.aborted) return;
    look();
    clock.after(ms, () => every(ms, look));
  };
  try {
    // Loaded here, because the node engine also runs where koffi's addon cannot be loaded.
    const { RouteEvents } = await import('./rtnetlink.ts');
    const events = new RouteEvents();
    every(LOOK_MS, () => {
      if (events.take()) onChange();
    });
  } catch {
    every(BLIND_LOOK_MS, onChange);
  }
}
