import { COUNTERS } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { Member } from '../../../services/member.ts';
import type { Memory } from '../../../sys/memory.ts';
import { AF_INET6 } from '../../../sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../../sys/socket-address.ts';
import { Guess } from './guess.ts';
import type { SocketKind } from './parked-sockets.ts';
import { COUNTERS_BYTES, type CountedBackends } from './protocol.ts';

/** Of endpoints that are in neither list. */
const UNREAD = new Float64Array(COUNTERS.length);

/** One endpoint of one Service port, ready to be dialled. */
export class Target extends Member {
  /** Shared with the main thread while the endpoint is in the set or draining. */
  readonly counters: Float64Array;
  /** The handshake ends within `connect`: it is on this node. */
  readonly answersAtOnce = new Guess();
  #address: Memory | undefined;

  constructor(endpoint: Endpoint, name: string, counters: Float64Array = UNREAD) {
    super(endpoint, name);
    this.counters = counters;
  }

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
      return [index, new Float64Array(memory, offset + block * COUNTERS_BYTES, COUNTERS.length)];
    }),
  );
}
