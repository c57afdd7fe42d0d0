import type { Memory } from '../../../sys/memory.ts';
import { AF_INET6 } from '../../../sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../../sys/socket-address.ts';
import { Target as CoreTarget } from '../../core/target.ts';
import { Guess } from './guess.ts';
import type { SocketKind } from './parked-sockets.ts';

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
