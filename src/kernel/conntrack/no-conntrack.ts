import type { Conntrack } from '../../model/conntrack.ts';
import type { Log } from '../../util/log.ts';

/** Where entries can neither be read nor deleted: says so when it matters for the first time. */
export class NoConntrack implements Conntrack {
  readonly #log: Log;
  readonly #reason: string;
  #isTold = false;

  constructor(log: Log, reason: string) {
    this.#log = log;
    this.#reason = reason;
  }

  deleteUdp(): Promise<number> {
    if (!this.#isTold) {
      this.#isTold = true;
      this.#log.warn(
        'Cannot clear UDP entries of connection tracking: a client that goes on sending from one port keeps to the rules ' +
          'of its first datagram, until it rests for the time of nf_conntrack_udp_timeout; install the program conntrack',
        { err: this.#reason },
      );
    }
    return Promise.resolve(0);
  }

  deleteUdpTo(): Promise<number> {
    return this.deleteUdp();
  }
}
