import type { Socket } from 'node:net';
import type { Timer } from '../../contracts/clock.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { copy } from './copy.ts';
import { Dial } from './dial.ts';
import type { PortContext } from './port-context.ts';
import { reset } from './reset.ts';
import { turnAway } from './turn-away.ts';

/**
 * One client, from accept to the end of both sides.
 *
 * A reset or failure of one side is a reset of the other, never a clean end, so that nobody takes half a stream for a
 * whole one. The same holds where this program cuts a connection itself. Only a client for whom there is no endpoint is
 * closed without a reset, as upstream: no byte of an answer has reached it that could be mistaken for all of it.
 *
 * The client is read while dialling (up to its high-water mark), because only a socket that is read tells of a reset.
 */
export class TcpConnection {
  readonly port: PortContext;
  /** `endpointName` of the one that answered. */
  endpoint: string | undefined;
  readonly #client: Socket;
  readonly #onOver: () => void;
  #dial: Dial | undefined;
  #backend: Socket | undefined;
  #openSockets = 0;
  #halfOpenTimer: Timer | undefined;
  #lastMovedMs = 0;

  constructor(client: Socket, port: PortContext, onOver: () => void) {
    this.#client = client;
    this.port = port;
    this.#onOver = onOver;
    port.counters.connections++;
    port.counters.active++;
    this.#watch(client);
  }

  start(): void {
    const client = this.#client.remoteAddress;
    if (client === undefined) {
      // It has gone already, and so has its address.
      this.#client.destroy();
      return;
    }
    this.#dial = new Dial({
      port: this.port,
      pick: this.port.picker.pick(client, this.port.clock.now()),
      onConnected: (backend, endpoint) => this.#join(backend, endpoint),
      onReset: () => reset(this.#client),
      onGivenUp: (reason) => {
        turnAway(this.port, client, reason);
        this.#client.destroy();
      },
    });
    this.#dial.start();
  }

  /** Ends both sides at once. */
  cut(): void {
    this.#dial?.cancel();
    reset(this.#client);
    if (this.#backend !== undefined) reset(this.#backend);
  }

  #join(backend: Socket, endpoint: Endpoint): void {
    const client = this.#client;
    this.#backend = backend;
    this.endpoint = endpointName(endpoint);
    this.port.drain?.connected(this.endpoint);
    this.#watch(backend);
    const { counters, clock } = this.port;
    // The clock is read per chunk only while it matters.
    const moved = (): void => {
      if (this.#halfOpenTimer !== undefined) this.#lastMovedMs = clock.now();
    };
    copy(client, backend, (count) => {
      counters.receivedBytes += count;
      moved();
    });
    copy(backend, client, (count) => {
      counters.sentBytes += count;
      moved();
    });
    if (client.readableEnded) this.#watchHalfOpen();
    else client.once('end', () => this.#watchHalfOpen());
    backend.once('end', () => this.#watchHalfOpen());
  }

  #watch(socket: Socket): void {
    this.#openSockets++;
    // An error is always followed by 'close', where it is dealt with; without a listener it would end the process.
    socket.on('error', () => {});
    socket.on('close', (hadError) => {
      if (hadError) this.cut();
      if (--this.#openSockets === 0) this.#over();
    });
  }

  #over(): void {
    this.#halfOpenTimer?.cancel();
    this.port.counters.active--;
    this.#onOver();
  }

  /** From the first end of a direction on, something must move. */
  #watchHalfOpen(): void {
    this.#lastMovedMs = this.port.clock.now();
    if (this.#halfOpenTimer === undefined) this.#armHalfOpenTimer(this.port.options.tcpHalfOpenTimeoutMs);
  }

  #armHalfOpenTimer(delayMs: number): void {
    this.#halfOpenTimer = this.port.clock.after(delayMs, () => {
      const leftMs = this.#lastMovedMs + this.port.options.tcpHalfOpenTimeoutMs - this.port.clock.now();
      if (leftMs > 0) this.#armHalfOpenTimer(Math.ceil(leftMs));
      else this.#endHalfOpen();
    });
  }

  /**
   * The side that still owes its end has had the other's: closing it lets the kernel deliver what may still be on the
   * way to a slow reader. The side that waits for the rest must not take what it has for all, so it is reset.
   */
  #endHalfOpen(): void {
    for (const socket of [this.#client, this.#backend]) {
      if (socket?.writableFinished) socket.destroy();
      else if (socket !== undefined) reset(socket);
    }
  }
}
