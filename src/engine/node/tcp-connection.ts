import type { Socket } from 'node:net';
import { type Address, unmapped } from '../../model/address.ts';
import type { Counters, OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { type Timer, wholeMsLeft } from '../../util/clock.ts';
import { isDead, lookIntervalMs, NEVER, unansweredSinceMs } from '../dead-peer.ts';
import { copy } from './copy.ts';
import { Dial } from './dial.ts';
import type { KernelSockets, PortContext } from './port-context.ts';
import { reset } from './reset.ts';
import { turnAway } from './turn-away.ts';

/** How long bytes that were sent before a reset may take to arrive, and how often to look. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

/**
 * One client, from accept to the end of both sides.
 *
 * A reset or failure of one side is a reset of the other, never a clean end, so that nobody takes half a stream for a
 * whole one; what was sent before it arrives first, as it would without a proxy. The same holds where this program cuts
 * a connection itself. Only a client for whom there is no endpoint is closed without a reset, as upstream: no byte of an
 * answer has reached it that could be mistaken for all of it.
 *
 * The client is read while dialling (up to its high-water mark), because only a socket that is read tells of a reset.
 */
export class TcpConnection {
  readonly port: PortContext;
  /** The one that answered. */
  endpoint: Endpoint | undefined;
  readonly #client: Socket;
  readonly #onOver: () => void;
  #dial: Dial | undefined;
  #backend: Socket | undefined;
  /** The endpoint's, once it has answered. */
  #share: Counters | undefined;
  #openSockets = 0;
  #halfOpenTimer: Timer | undefined;
  #lastMovedMs = 0;
  /** Runs while the endpoint has something to acknowledge, or a side is not read: only the kernel knows of it then. */
  #lookTimer: Timer | undefined;
  #unansweredSinceMs = NEVER;
  #settleTimer: Timer | undefined;

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
      onConnected: (backend, endpoint, rest) => this.#join(backend, endpoint, rest),
      onReset: (endpoint, rest) => {
        countReset(this.port, this.port.endpoints.of(endpoint));
        this.#passOn(rest, this.port.endpoints.of(endpoint));
        this.#settle(this.#client);
      },
      onGivenUp: (reason) => {
        turnAway(this.port, client, reason);
        this.#client.destroy();
      },
    });
    this.#dial.start();
  }

  /** `undefined` when the client had gone before anybody looked who it was. */
  describe(): OpenConnection | undefined {
    const { remoteAddress, remotePort } = this.#client;
    if (remoteAddress === undefined || remotePort === undefined) return undefined;
    const client = { address: unmapped(remoteAddress) as Address, port: remotePort };
    const { endpoint } = this;
    if (endpoint === undefined) return { client, endpoint: this.#dial?.endpoint, state: 'dialling' };
    if (this.#halfOpenTimer === undefined) return { client, endpoint, state: 'established' };
    return { client, endpoint, state: 'half-closed', expiresMs: wholeMsLeft(this.#halfOpenLeftMs()) };
  }

  /** Ends both sides at once. */
  cut(): void {
    this.#dial?.cancel();
    reset(this.#client);
    if (this.#backend !== undefined) reset(this.#backend);
  }

  #join(backend: Socket, endpoint: Endpoint, rest: readonly Buffer[]): void {
    const client = this.#client;
    this.#backend = backend;
    this.endpoint = endpoint;
    this.port.drain?.connected(endpoint);
    const { counters, clock } = this.port;
    const share = this.port.endpoints.of(endpoint);
    this.#share = share;
    share.connections++;
    share.active++;
    this.#watch(backend, () => {
      countReset(this.port, share);
      this.#passOn(rest, share);
    });
    // The clock is read per chunk only while it matters.
    const moved = (): void => {
      if (this.#halfOpenTimer !== undefined) this.#lastMovedMs = clock.now();
    };
    const onStall = (): void => this.#lookLater();
    copy(client, backend, {
      onStall,
      onBytes: (count) => {
        counters.receivedBytes += count;
        share.receivedBytes += count;
        moved();
        if (this.port.options.tcpUserTimeoutMs > 0) this.#lookLater();
      },
    });
    copy(backend, client, {
      onStall,
      onBytes: (count) => {
        counters.sentBytes += count;
        share.sentBytes += count;
        moved();
      },
    });
    if (client.readableEnded) this.#watchHalfOpen();
    else client.once('end', () => this.#watchHalfOpen());
    backend.once('end', () => this.#watchHalfOpen());
  }

  #watch(socket: Socket, onBroken = (): void => {}): void {
    this.#openSockets++;
    // An error is always followed by 'close', where it is dealt with; without a listener it would end the process.
    socket.on('error', () => {});
    socket.on('close', (hadError) => {
      if (hadError) {
        onBroken();
        this.#settle(socket === this.#client ? this.#backend : this.#client);
      }
      if (--this.#openSockets === 0) this.#over();
    });
  }

  /** What the endpoint sent before its connection broke. */
  #passOn(rest: readonly Buffer[], share: Counters): void {
    for (const chunk of rest) {
      this.port.counters.sentBytes += chunk.length;
      share.sentBytes += chunk.length;
      if (this.#client.writable) this.#client.write(chunk);
    }
  }

  /** The other side broke: this one gets what came before, then the reset. */
  #settle(side: Socket | undefined, giveUpMs = this.port.clock.now() + RESET_PATIENCE_MS): void {
    const { clock, kernel } = this.port;
    const isDelivered =
      side === undefined ||
      side.destroyed ||
      (side.writableLength === 0 && (kernel?.unacknowledgedBytes(side) ?? 0) === 0);
    if (isDelivered || clock.now() >= giveUpMs) this.cut();
    else this.#settleTimer = clock.after(RESET_POLL_MS, () => this.#settle(side, giveUpMs));
  }

  #over(): void {
    this.#halfOpenTimer?.cancel();
    this.#lookTimer?.cancel();
    this.#settleTimer?.cancel();
    this.port.counters.active--;
    if (this.#share !== undefined) this.#share.active--;
    this.#onOver();
  }

  #lookLater(): void {
    const { kernel, options } = this.port;
    if (this.#lookTimer !== undefined || kernel === undefined) return;
    const { tcpUserTimeoutMs, tcpHalfOpenTimeoutMs } = options;
    this.#unansweredSinceMs = NEVER;
    this.#armLookTimer(
      kernel,
      lookIntervalMs(Math.min(tcpUserTimeoutMs || tcpHalfOpenTimeoutMs, tcpHalfOpenTimeoutMs)),
    );
  }

  #armLookTimer(kernel: KernelSockets, delayMs: number): void {
    this.#lookTimer = this.port.clock.after(delayMs, () => {
      this.#lookTimer = undefined;
      if (this.#look(kernel)) this.#armLookTimer(kernel, delayMs);
    });
  }

  /** Whether there is reason to look again. */
  #look(kernel: KernelSockets): boolean {
    const backend = this.#backend as Socket;
    let isStalled = false;
    for (const side of [this.#client, backend]) {
      if (!side.isPaused() || side.destroyed) continue;
      isStalled = true;
      // Its end waits behind what the other side does not take: from now on something must move.
      if (this.#halfOpenTimer === undefined && kernel.peerState(side)?.hasEnded) this.#watchHalfOpen();
    }
    const { tcpUserTimeoutMs } = this.port.options;
    if (tcpUserTimeoutMs === 0 || kernel.unacknowledgedBytes(backend) === 0) return isStalled;
    const state = kernel.peerState(backend);
    if (state === undefined) return isStalled;
    const nowMs = this.port.clock.now();
    this.#unansweredSinceMs = unansweredSinceMs(state, this.#unansweredSinceMs, nowMs);
    if (!isDead(state, nowMs - this.#unansweredSinceMs, tcpUserTimeoutMs)) return true;
    countReset(this.port, this.#share as Counters);
    this.cut();
    return false;
  }

  /** From the first end of a direction on, something must move. */
  #watchHalfOpen(): void {
    this.#lastMovedMs = this.port.clock.now();
    if (this.#halfOpenTimer === undefined) this.#armHalfOpenTimer(this.port.options.tcpHalfOpenTimeoutMs);
  }

  #armHalfOpenTimer(delayMs: number): void {
    this.#halfOpenTimer = this.port.clock.after(delayMs, () => {
      const leftMs = this.#halfOpenLeftMs();
      if (leftMs > 0) this.#armHalfOpenTimer(Math.ceil(leftMs));
      // One turn later: after a standstill of this process timers come first, and bytes that are there already next.
      else if (delayMs > 0) this.#armHalfOpenTimer(0);
      else this.#endHalfOpen();
    });
  }

  #halfOpenLeftMs(): number {
    return this.#lastMovedMs + this.port.options.tcpHalfOpenTimeoutMs - this.port.clock.now();
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

function countReset({ counters }: PortContext, share: Counters): void {
  counters.resets++;
  share.resets++;
}
