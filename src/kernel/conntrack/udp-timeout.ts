import { readIfThere } from '../files.ts';

/** The kernel's own default. */
const DEFAULT_SECONDS = 30;

/** How old the value may be. Reading it costs some microseconds. */
const FRESH_MS = 1000;

/** {@link udpTimeoutMs}, which this program (`--conntrack-udp-timeout`) and others change at any time. */
export class UdpTimeout {
  #readMs = Number.NEGATIVE_INFINITY;
  #timeoutMs = 0;

  at(nowMs: number): number {
    if (nowMs - this.#readMs >= FRESH_MS) {
      this.#readMs = nowMs;
      this.#timeoutMs = udpTimeoutMs();
    }
    return this.#timeoutMs;
  }
}

/** How long connection tracking remembers a UDP flow after its last datagram, in milliseconds. */
export function udpTimeoutMs(): number {
  return Number(readIfThere('/proc/sys/net/netfilter/nf_conntrack_udp_timeout') ?? DEFAULT_SECONDS) * 1000;
}
