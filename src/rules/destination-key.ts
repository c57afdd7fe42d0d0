import { type Address, addressBytes, type IpFamily, parseAddress } from '../model/address.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';

/**
 * What a rule matches on, most significant first, one character a step: the address in hexadecimal (not in chains of
 * node ports, which have none), `t` or `u` for the protocol, the port in hexadecimal. "0a600001t0050" is
 * 10.96.0.1:80/TCP, "t7580" the NodePort 30080/TCP. A prefix of it is a set of destinations that one rule can match.
 */
export type DestinationKey = string;

const PROTOCOLS = { TCP: 't', UDP: 'u' } as const;

export function portKey(protocol: ProxiedProtocol, port: number): DestinationKey {
  return PROTOCOLS[protocol] + hex(port, 4);
}

export function addressKey(address: Address): DestinationKey {
  return addressBytes(address)
    .map((byte) => hex(byte, 2))
    .join('');
}

/** The matches for all destinations below a prefix, as `iptables-save` prints them. */
export function prefixMatch(prefix: DestinationKey, family: IpFamily): string {
  const [, address = '', protocol, port = ''] = /^([0-9a-f]*)([tu]?)([0-9a-f]*)$/.exec(prefix) ?? [];
  const matches: string[] = [];
  if (address !== '') matches.push(`-d ${networkOf(address, family)}/${address.length * 4}`);
  if (protocol !== '') {
    const proto = protocol === PROTOCOLS.TCP ? 'tcp' : 'udp';
    matches.push(`-p ${proto}`);
    if (port !== '') matches.push(`-m ${proto} --dport ${portRange(port)}`);
  }
  return matches.join(' ');
}

function portRange(prefix: string): string {
  const first = Number.parseInt(prefix.padEnd(4, '0'), 16);
  const last = Number.parseInt(prefix.padEnd(4, 'f'), 16);
  return first === last ? String(first) : `${first}:${last}`;
}

function networkOf(prefix: string, family: IpFamily): Address {
  const full = prefix.padEnd(family === 'IPv4' ? 8 : 32, '0');
  const text =
    family === 'IPv4'
      ? (full.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16)).join('.')
      : (full.match(/..../g) ?? []).join(':');
  const network = parseAddress(text);
  if (network === undefined) throw new Error(`The prefix "${prefix}" is no ${family} network`);
  return network;
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}
