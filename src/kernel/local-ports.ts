import { closeSync, openSync, readSync } from 'node:fs';
import { type Address, addressBytes, familyOf, type IpFamily, type PortRange } from '../model/address.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';
import { readIfThere } from './files.ts';

/** The ports that the kernel assigns by itself. */
export interface LocalPorts {
  readonly range: PortRange;
  /** Ports of the range that an administrator has reserved. */
  readonly reserved: ReadonlySet<number>;
}

/** The kernel's own default. */
const DEFAULT: PortRange = { first: 32_768, last: 60_999 };

/**
 * From the texts of `/proc/sys/net/ipv4/ip_local_port_range` ("32768	60999") and `ip_local_reserved_ports`
 * ("8080,9000-9010"), each `undefined` where it cannot be read.
 */
export function parseLocalPorts(range: string | undefined, reserved: string | undefined): LocalPorts {
  const [, first, last] = /^(\d+)\s+(\d+)\s*$/.exec(range ?? '') ?? [];
  return {
    range: first === undefined ? DEFAULT : { first: Math.max(1, Number(first)), last: Number(last) },
    reserved: new Set([...portsOf(reserved ?? '')]),
  };
}

/** {@link parseLocalPorts} of this network namespace. */
export function localPorts(): LocalPorts {
  // Of a sealed /proc, the default is as good a guess as any, because taken ports are noticed when binding.
  const [range, reserved] = ['ip_local_port_range', 'ip_local_reserved_ports'].map((name) =>
    readIfThere(`/proc/sys/net/ipv4/${name}`),
  );
  return parseLocalPorts(range, reserved);
}

function* portsOf(list: string): Iterable<number> {
  for (const [, first, last = first] of list.matchAll(/(\d+)(?:-(\d+))?/g)) {
    for (let port = Number(first); port <= Number(last); port++) yield port;
  }
}

/** The states of receiving sockets in /proc/net: TCP_LISTEN; and for UDP, unconnected. */
const RECEIVES: Readonly<Record<ProxiedProtocol, string>> = { TCP: '0A', UDP: '07' };

/** `sl local_address rem_address st queues timer retransmits uid timeout inode …`, addresses in hexadecimal. */
const LINE = /^\s*\d+: ([0-9A-F]{8,32}:[0-9A-F]{4}) \S+ ([0-9A-F]{2}) \S+ \S+ \S+\s+\d+\s+\d+ (\d+) /;

/** One change may query many times. */
const VALID_MS = 1_000;

const CHUNK_BYTES = 64 << 10;

/** The addresses at which programs receive, in the kernel's notation, by port. */
type Sockets = ReadonlyMap<number, ReadonlySet<string>>;

const ANY_IPV4 = '0'.repeat(8);
const ANY_IPV6 = '0'.repeat(32);
/** Of an IPv4 address in an IPv6 socket: ::ffff:0:0/96. */
const MAPPED = '0000000000000000FFFF0000';

/** Which addresses and ports programs of this machine listen at, from `/proc/net`. */
export class ListeningSockets {
  readonly #clock: Clock;
  readonly #known = new Map<ProxiedProtocol, { readonly sockets: Sockets; readonly untilMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether a program receives there. A wildcard counts for every address; the IPv6 wildcard counts for IPv4, too. */
  isListening(address: Address, port: number, protocol: ProxiedProtocol): boolean {
    const own = hexOf(address);
    const forms = familyOf(address) === 'IPv4' ? [own, ANY_IPV4, MAPPED + own, ANY_IPV6] : [own, ANY_IPV6];
    const receiving = this.#sockets(protocol).get(port);
    return receiving !== undefined && forms.some((form) => receiving.has(form));
  }

  /** Whether a program receives at any address of the family. */
  isTaken(family: IpFamily, port: number, protocol: ProxiedProtocol): boolean {
    const isIPv4 = (form: string) => form.length === ANY_IPV4.length;
    const isOfFamily = (form: string) =>
      family === 'IPv6' ? !isIPv4(form) : isIPv4(form) || form.startsWith(MAPPED) || form === ANY_IPV6;
    return [...(this.#sockets(protocol).get(port) ?? [])].some(isOfFamily);
  }

  #sockets(protocol: ProxiedProtocol): Sockets {
    const known = this.#known.get(protocol);
    const now = this.#clock.now();
    if (known !== undefined && now < known.untilMs) return known.sockets;
    const file = protocol.toLowerCase();
    const sockets = new Map<number, Set<string>>();
    for (const name of [file, `${file}6`]) {
      for (const { local } of receiving(readTable(`/proc/net/${name}`, protocol), protocol)) {
        const [address = '', hex = ''] = local.split(':');
        const port = Number.parseInt(hex, 16);
        sockets.set(port, (sockets.get(port) ?? new Set()).add(address));
      }
    }
    this.#known.set(protocol, { sockets, untilMs: now + VALID_MS });
    return sockets;
  }
}

/** A table's receiving sockets: their local addresses in the kernel's notation, and their inodes. */
export function* receiving(table: string, protocol: ProxiedProtocol): Generator<{ local: string; inode: string }> {
  for (const line of table.split('\n')) {
    const [, local, state, inode] = LINE.exec(line) ?? [];
    if (local !== undefined && inode !== undefined && state === RECEIVES[protocol]) yield { local, inode };
  }
}

/** The whole table; for TCP only the listeners, which come first, before possibly a million connections. */
export function readTable(path: string, protocol: ProxiedProtocol): string {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    // No IPv6 here, or a sealed /proc.
    return '';
  }
  try {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    // Not one text that grows: a look into it would copy all of it.
    const texts: string[] = [];
    for (let length = readSync(fd, chunk); length > 0; length = readSync(fd, chunk)) {
      const text = chunk.toString('latin1', 0, length);
      texts.push(text);
      if (protocol !== 'TCP') continue;
      const end = text.lastIndexOf('\n');
      const state = LINE.exec(text.slice(text.lastIndexOf('\n', end - 1) + 1, end))?.[2];
      if (state !== undefined && state !== RECEIVES.TCP) break;
    }
    return texts.join('');
  } finally {
    closeSync(fd);
  }
}

/** The kernel prints words of four bytes as numbers in the machine's order, which is little-endian. */
function hexOf(address: Address): string {
  const bytes = Buffer.from(addressBytes(address));
  bytes.swap32();
  return bytes.toString('hex').toUpperCase();
}
