import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { toListenError } from '../errors.ts';
import { reset } from './node-side.ts';
import type { Port } from './port.ts';
import { TCP_OPTIONS } from './tcp-attempt.ts';
import { TcpConnection } from './tcp-connection.ts';

/** How many clients may wait to be accepted; the kernel limits it to `net.core.somaxconn` (4096 by default). */
const BACKLOG = 4096;

/**
 * Accepts the clients of one Service port. While its namespace has its share of the descriptors, they wait in the
 * kernel's queue: Node cannot stop accepting, so the server closes, and another descriptor keeps the socket open. When
 * the process has no descriptor left, libuv accepts and closes the clients that wait (`uv__emfile_trick`), so the
 * listener neither spins nor dies.
 */
export class TcpListener {
  readonly port: Port;
  #server: Server;
  localPort = 0;
  /** While clients wait. */
  #heldFd: number | undefined;

  /** Rejects with a ListenError. */
  static async open(port: Port): Promise<TcpListener> {
    const listener = new TcpListener(port);
    await listener.#open();
    return listener;
  }

  private constructor(port: Port) {
    this.port = port;
    this.#server = this.#create();
  }

  /** Closes the descriptor within the call. The server's callback would come after the last connection. */
  close(): void {
    const { admission, setup, thread } = this.port;
    admission.forget(this);
    thread.shares.descriptors.give(1);
    if (this.#heldFd === undefined) this.#server.close();
    else setup.kernel?.close(this.#heldFd);
  }

  goOn(): void {
    this.#server = this.#create();
    this.#stayOpen();
    this.#server.listen({ fd: this.#heldFd, backlog: BACKLOG });
    this.#heldFd = undefined;
  }

  #create(): Server {
    return createServer(TCP_OPTIONS, (client) => this.#onClient(client));
  }

  async #open(): Promise<void> {
    const { spec, setup, thread } = this.port;
    const server = this.#server;
    const listening = once(server, 'listening');
    server.listen({ host: spec.address, port: spec.port, backlog: BACKLOG, ipv6Only: true });
    try {
      await listening;
    } catch (err) {
      throw toListenError(spec, err);
    }
    thread.shares.descriptors.take(1);
    const { kernel, options } = setup;
    if (options.congestionControl !== undefined) kernel?.useCongestionControl(server, options.congestionControl);
    this.#stayOpen();
    const address = server.address();
    this.localPort = address !== null && typeof address === 'object' ? address.port : spec.port;
  }

  /** After an error, too. */
  #stayOpen(): void {
    this.#server.on('error', (err) => this.port.listenerFailed(err.message));
  }

  #onClient(client: Socket): void {
    const { admission, share } = this.port;
    if (admission.admitsAccepted(share)) new TcpConnection(this.port, client).begin();
    else {
      this.port.limited(client.remoteAddress, 'descriptors');
      reset(client);
    }
    if (!admission.admits(share)) this.#hold();
  }

  #hold(): void {
    const fd = this.port.setup.kernel?.duplicate(this.#server);
    if (fd === undefined) return;
    this.#heldFd = fd;
    this.#server.close();
    this.port.admission.hold(this);
  }
}
