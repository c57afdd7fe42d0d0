import { readFileSync } from 'node:fs';

/** The kernel's own default. */
const DEFAULT_SECONDS = 30;

/** How long connection tracking remembers a UDP flow after its last datagram, in milliseconds. */
export function udpTimeoutMs(): number {
  try {
    return Number(readFileSync('/proc/sys/net/netfilter/nf_conntrack_udp_timeout', 'utf8')) * 1000;
  } catch {
    return DEFAULT_SECONDS * 1000;
  }
}
