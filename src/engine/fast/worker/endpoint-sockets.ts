import type { PortRange } from '../../../model/address.ts';
import { Memory } from '../../../sys/memory.ts';
import {
  getsockname,
  markOption,
  resetOnClose,
  SOCKET_ADDRESS_BYTES,
  type SocketOption,
  setOption,
} from '../../../sys/socket.ts';
import type { Target } from './endpoints.ts';

/** What all sockets towards endpoints have in common, TCP and UDP. */
export class EndpointSockets {
  readonly #mark: readonly SocketOption[];
  /** From which the kernel gives a connection its local port. */
  readonly #localPorts: PortRange;
  readonly #name = new Memory(SOCKET_ADDRESS_BYTES);

  constructor(mark: number | undefined, localPorts: PortRange) {
    this.#mark = mark === undefined ? [] : [markOption(mark)];
    this.#localPorts = localPorts;
  }

  /** Before `fd` is connected. */
  prepare(fd: number, options: readonly SocketOption[]): void {
    for (const option of options) setOption(fd, option);
    for (const option of this.#mark) setOption(fd, option);
  }

  /**
   * Whether `fd` is connected to itself. That happens where nobody listens at an address of this node and the kernel gives
   * the connection that very port; the client would get its own bytes back (Go's `net` package has the same check). Such a
   * socket leaves no TIME_WAIT, which would keep the endpoint's program from its port. Most endpoints have ports outside
   * the kernel's range, and cost nothing.
   */
  isToItself(fd: number, { endpoint: { port }, address }: Target): boolean {
    if (port < this.#localPorts.first || port > this.#localPorts.last) return false;
    if (getsockname(fd, this.#name) < 0 || !address.bytes.equals(this.#name.bytes.subarray(0, address.length))) {
      return false;
    }
    resetOnClose(fd);
    return true;
  }
}
