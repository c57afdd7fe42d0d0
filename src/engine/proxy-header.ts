import { type Address, addressBytes, familyOf, parseAddress } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ProxyProtocol } from '../model/service.ts';

/*
 * HAProxy's PROXY protocol (its doc/proxy-protocol.txt): a header before the first byte of a connection says who
 * connected to what. Version 1 is a line of text, version 2 is binary.
 */

const SIGNATURE = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a];
/** Version 2, command PROXY: the connection is on behalf of a client. */
const V2_PROXY = 0x21;
const TCP_OVER = { IPv4: 0x11, IPv6: 0x21 } as const;

const ENCODERS = { v1: encodeV1, v2: encodeV2 } as const;

/**
 * `destination`: what the client asked for. At most 104 bytes. The format has room for one family, so addresses of
 * different families are both given as IPv6, the IPv4 one mapped, as HAProxy does (`src/connection.c`,
 * make_proxy_line_v1).
 */
export function proxyHeader(version: ProxyProtocol, client: Endpoint, destination: Endpoint): Buffer {
  const isMixed = familyOf(client.address) !== familyOf(destination.address);
  const [from, to] = isMixed ? [mapped(client), mapped(destination)] : [client, destination];
  return ENCODERS[version](from, to);
}

function encodeV1(from: Endpoint, to: Endpoint): Buffer {
  const protocol = familyOf(from.address) === 'IPv4' ? 'TCP4' : 'TCP6';
  return Buffer.from(`PROXY ${protocol} ${from.address} ${to.address} ${from.port} ${to.port}\r\n`, 'latin1');
}

function encodeV2(from: Endpoint, to: Endpoint): Buffer {
  const addresses = [...addressBytes(from.address), ...addressBytes(to.address), ...bytes16(from.port, to.port)];
  return Buffer.from([
    ...SIGNATURE,
    V2_PROXY,
    TCP_OVER[familyOf(from.address)],
    ...bytes16(addresses.length),
    ...addresses,
  ]);
}

function mapped({ address, port }: Endpoint): Endpoint {
  const isMapped = familyOf(address) === 'IPv6';
  return { address: isMapped ? address : (parseAddress(`::ffff:${address}`) as Address), port };
}

/** In network order. */
function bytes16(...values: readonly number[]): number[] {
  return values.flatMap((value) => [value >> 8, value & 0xff]);
}
