import { type Address, familyOf, isWildcard, parseAddress, specialAddressReason } from '../model/address.ts';
import { UsageError } from './usage-error.ts';

/** Where an HTTP server listens. Port 0 lets the kernel choose. */
export interface ListenAddress {
  readonly address: Address;
  readonly port: number;
}

const MAX_PORT = 65_535;

function requireAddress(text: string): Address {
  const address = parseAddress(text);
  if (address === undefined) throw new UsageError('not an IP address; write one such as 0.0.0.0 or 192.0.2.10');
  return address;
}

/** That of IPv6 says nothing without its interface, and cannot be the target of NAT. */
function isAssignableLinkLocal(address: Address): boolean {
  return familyOf(address) === 'IPv4' && specialAddressReason(address) === 'link-local';
}

/** The address that the proxy's local ports listen on. */
export function parseBindAddress(text: string): Address {
  const address = requireAddress(text);
  const reason = specialAddressReason(address);
  if (reason === 'loopback') {
    // Upstream refuses only 127.0.0.1 and ::1 (`pkg/proxy/userspace/proxier.go`); the rest of 127/8 fails alike.
    throw new UsageError(
      'clients on the network and in pods cannot reach a loopback address: the kernel drops packets that are ' +
        'redirected to it; use 0.0.0.0 or an address of this node',
    );
  }
  const assignable = isWildcard(address) || reason === undefined || isAssignableLinkLocal(address);
  if (!assignable) {
    throw new UsageError(
      `a ${reason} address cannot be listened on for Services; use 0.0.0.0 or an address of this node`,
    );
  }
  return address;
}

/**
 * `ip` or `ip:port`, IPv6 with a port in brackets; a missing port is `defaultPort`; the empty text switches the server
 * off (k8s.io/kubernetes `pkg/util/flag` IPPortVar, `pkg/cluster/ports` defaults).
 */
export function parseListenAddress(text: string, defaultPort: number): ListenAddress | undefined {
  if (text === '') return undefined;
  const whole = parseAddress(text);
  if (whole !== undefined) return { address: whole, port: defaultPort };

  const match = /^(?:\[(?<v6>[^\]]*)\]|(?<v4>[^:[\]]*)):(?<port>\d{1,5})$/.exec(text);
  const { v6, v4, port } = match?.groups ?? {};
  const address = parseAddress(v6 ?? v4 ?? '');
  const bracketed = v6 !== undefined;
  if (address === undefined || Number(port) > MAX_PORT || bracketed !== (familyOf(address) === 'IPv6')) {
    throw new UsageError(
      `not ip or ip:port; write one such as 127.0.0.1:${defaultPort} or [::1]:${defaultPort}, or "" for no server`,
    );
  }
  return { address, port: Number(port) };
}

/** Whether both would listen on one port of one address. A wildcard is one of both families. */
export function collide(a: ListenAddress, b: ListenAddress): boolean {
  if (a.port !== b.port || a.port === 0) return false;
  const covers = (one: Address, other: Address) => one === other || isWildcard(one);
  return covers(a.address, b.address) || covers(b.address, a.address);
}
