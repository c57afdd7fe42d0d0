import { readFileSync } from 'node:fs';
import type { PortRange } from '../model/address.ts';

/** Where the kernel itself takes local ports from. */
export interface LocalPorts {
  readonly range: PortRange;
  /** Ports of the range that an administrator keeps for others. */
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

/** {@link parseLocalPorts} of the network namespace that we are in. */
export function localPorts(): LocalPorts {
  return parseLocalPorts(read('ip_local_port_range'), read('ip_local_reserved_ports'));
}

function* portsOf(list: string): Iterable<number> {
  for (const [, first, last = first] of list.matchAll(/(\d+)(?:-(\d+))?/g)) {
    for (let port = Number(first); port <= Number(last); port++) yield port;
  }
}

function read(name: string): string | undefined {
  try {
    return readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8');
  } catch {
    // A sealed /proc: its default is as good a guess as any, and a port that is taken is found out by trying.
    return undefined;
  }
}
