import type { Memory } from '../../../sys/memory.ts';
import { AF_INET6 } from '../../../sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../../sys/socket-address.ts';
import { Target as CoreTarget } from '../../core/target.ts';
import { Guess } from './guess.ts';
import type { SocketKind } from './parked-sockets.ts';
import { COUNTERS_BYTES, type CountedBackends, countersIn } from './protocol.ts';

/** One endpoint of one Service port, ready to be dialled. */
export class Target extends CoreTarget {
  /** The handshake ends within `connect`: it is on this node. */
  readonly answersAtOnce = new Guess();
  #address: Memory | undefined;

  get family(): number {
    return familyOfText(this.endpoint.address);
  }

  /** Of sockets without an address of their own. */
  get tcpKind(): SocketKind {
    return this.family === AF_INET6 ? 'TCP6' : 'TCP';
  }

  get udpKind(): SocketKind {
    return this.family === AF_INET6 ? 'UDP6' : 'UDP';
  }

  /** Made at the first use: of ten thousand Services, most are not used on this node. */
  get address(): Memory {
    this.#address ??= encodeSocketAddress(this.endpoint.address, this.endpoint.port);
    return this.#address;
  }
}

/** The counters of endpoints that are new, by their place in the lists. */
export function freshCounters(backends: CountedBackends): ReadonlyMap<number, Float64Array> {
  const { memory, offset } = backends.counters;
  return new Map(
    backends.fresh.map((index, block) => {
      return [index, countersIn({ memory, offset: offset + block * COUNTERS_BYTES })];
    }),
  );
}
