import { closeSync, openSync, readSync } from 'node:fs';
import { type Address, addressBytes, familyOf } from '../model/address.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';

/** A socket's state in /proc/net: of TCP, TCP_LISTEN; of UDP, one that is connected to nobody. */
const RECEIVES: Readonly<Record<ProxiedProtocol, string>> = { TCP: '0A', UDP: '07' };

/** `sl local_address rem_address st …`, in upper case hexadecimal. */
const LINE = /^\s*\d+: ([0-9A-F]{8,32}:[0-9A-F]{4}) \S+ ([0-9A-F]{2}) /;

/** Many questions are asked within one change. */
const VALID_MS = 1_000;

const CHUNK_BYTES = 64 << 10;

/** Which programs of this machine listen, as `/proc/net` tells. */
export class ListeningSockets {
  readonly #clock: Clock;
  readonly #known = new Map<ProxiedProtocol, { readonly sockets: ReadonlySet<string>; readonly untilMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether somebody receives what is sent there; a wildcard counts for every address, that of IPv6 also for IPv4. */
  isListening(address: Address, port: number, protocol: ProxiedProtocol): boolean {
    const sockets = this.#sockets(protocol);
    const wildcards = familyOf(address) === 'IPv4' ? [hex(4), hex(16)] : [hex(16)];
    const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
    return [hexOf(address), ...wildcards].some((each) => sockets.has(each + suffix));
  }

  #sockets(protocol: ProxiedProtocol): ReadonlySet<string> {
    const known = this.#known.get(protocol);
    const now = this.#clock.now();
    if (known !== undefined && now < known.untilMs) return known.sockets;
    const file = protocol.toLowerCase();
    const tables = [file, `${file}6`].map((name) => readTable(`/proc/net/${name}`, protocol));
    const sockets = new Set(tables.flatMap((table) => [...receiving(table, protocol)]));
    this.#known.set(protocol, { sockets, untilMs: now + VALID_MS });
    return sockets;
  }
}

/** The local addresses of the sockets in a table that receive from anybody, as the kernel writes them. */
export function* receiving(table: string, protocol: ProxiedProtocol): Generator<string> {
  for (const line of table.split('\n')) {
    const [, local, state] = LINE.exec(line) ?? [];
    if (local !== undefined && state === RECEIVES[protocol]) yield local;
  }
}

/** All of it, or of TCP so much that it has every listener: they come first, before what may be a million connections. */
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
    let text = '';
    for (let length = readSync(fd, chunk); length > 0; length = readSync(fd, chunk)) {
      text += chunk.toString('latin1', 0, length);
      if (protocol !== 'TCP') continue;
      const end = text.lastIndexOf('\n');
      const state = LINE.exec(text.slice(text.lastIndexOf('\n', end - 1) + 1, end))?.[2];
      if (state !== undefined && state !== RECEIVES.TCP) break;
    }
    return text;
  } finally {
    closeSync(fd);
  }
}

/** The kernel prints words of four bytes as numbers, and all machines that this runs on put the lowest byte first. */
function hexOf(address: Address): string {
  const bytes = Buffer.from(addressBytes(address));
  bytes.swap32();
  return bytes.toString('hex').toUpperCase();
}

function hex(zeros: number): string {
  return '00'.repeat(zeros);
}
