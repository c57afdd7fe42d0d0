import type { Socket } from 'node:net';
import { type Address, unmapped } from '../../model/address.ts';
import type { Ending } from '../../model/connection-log.ts';
import type { DialFailure, OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { type Timer, wholeMsLeft } from '../../util/clock.ts';
import { Session } from '../core/session.ts';
import type { Target } from '../core/target.ts';
import { isDead, lookIntervalMs, NEVER, unansweredSinceMs } from '../dead-peer.ts';
import { proxyHeader } from '../proxy-header.ts';
import type { Port } from './port.ts';
import { SilenceTimer } from './silence-timer.ts';
import { type Dialler, type DialResult, TcpDial } from './tcp-dial.ts';

/** How long bytes that were sent before a reset may take to arrive, and how often to check. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

/**
 * One client, from accept to the end of both sides.
 *
 * A reset or failure of one side becomes a reset of the other, never a clean end: a peer must not take half a stream
 * for the whole. Bytes that were sent before the reset arrive first, as without a proxy. The same holds when this
 * program ends a connection, or a client gets no endpoint: a clean end would look like an empty answer.
 *
 * The client is read while dialling (up to its high-water mark), because Node reports a reset only of a socket it
 * reads.
 */
export class TcpConnection extends Session<Port> implements Dialler {
  target: Target | undefined;
  readonly #client: Socket;
  readonly #dial: TcpDial | undefined;
  #backend: Socket | undefined;
  #openSockets = 0;
  /** Once one side has ended its direction: something must move. */
  #halfOpen: SilenceTimer | undefined;
  /** Runs while the endpoint has bytes to acknowledge or a side is not read: then only the kernel sees its end. */
  #lookTimer: Timer | undefined;
  #unansweredSinceMs = NEVER;
  #settleTimer: Timer | undefined;
  /** Kept, because Node forgets it with the socket. */
  readonly #clientName: Endpoint | undefined;
  #receivedBytes = 0;
  #sentBytes = 0;
  /** Whose clean end came first; it counts where nothing else ends the connection. */
  #firstEnd: Ending = 'client-end';
  /** What ended it otherwise: the first cause, as others follow from it. */
  #broken: Ending | undefined;

  constructor(client: Socket, port: Port) {
    super(port);
    this.#client = client;
    this.begun();
    this.#watch(client);
    const { remoteAddress, remotePort } = client;
    if (remoteAddress !== undefined && remotePort !== undefined) {
      this.#clientName = { address: unmapped(remoteAddress) as Address, port: remotePort };
    }
    if (remoteAddress === undefined) {
      // The client has disconnected already.
      this.#broken = 'client-reset';
      client.destroy();
      return;
    }
    const kept = port.setup.keeper?.tcpClient(client, remoteAddress, port.keptAddresses);
    if (kept === 'unknown') {
      reset(client);
      return;
    }
    const pick = port.picker.pick(remoteAddress, port.thread.nowMs);
    this.#dial = new TcpDial(port, kept, { candidates: pick, dialler: this });
    this.#dial.start();
  }

  describe(): OpenConnection | undefined {
    const client = this.#clientName;
    if (client === undefined || this.#client.destroyed) return undefined;
    if (this.target === undefined) return { client, endpoint: this.#dial?.endpoint, state: 'dialling' };
    const { endpoint } = this.target;
    if (this.#halfOpen === undefined) return { client, endpoint, state: 'established' };
    return { client, endpoint, state: 'half-closed', expiresMs: wholeMsLeft(this.#halfOpen.leftMs) };
  }

  cut(ending: Ending): void {
    this.#broken ??= ending;
    this.#dial?.cancel();
    reset(this.#client);
    if (this.#backend !== undefined) reset(this.#backend);
  }

  onConnected(target: Target, { socket: backend, rest }: DialResult): void {
    const client = this.#client;
    this.target = target;
    this.answeredBy(target);
    if (backend === undefined) {
      this.#onEndpointReset(rest, target);
      this.#settle(client);
      return;
    }
    this.#backend = backend;
    this.#watch(backend, () => this.#onEndpointReset(rest, target));
    if (!this.#introduce(backend)) {
      this.cut('client-reset');
      return;
    }
    this.#copy(client, backend, 'receivedBytes', target);
    this.#copy(backend, client, 'sentBytes', target);
    if (client.readableEnded) this.#watchHalfOpen();
    else client.once('end', () => this.#onEnd('client-end'));
    backend.once('end', () => this.#onEnd('backend-end'));
  }

  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void {
    this.port.clientRefused(this.#clientName?.address ?? 'unknown', reason);
    this.cut(`refused-${reason}`);
  }

  onFailed({ name }: Target, reason: DialFailure): void {
    this.tries.fail(name, reason);
  }

  onRetry(): void {
    this.tries.retries++;
  }

  protected client(): Endpoint | undefined {
    return this.#clientName;
  }

  protected bytes() {
    return { receivedBytes: this.#receivedBytes, sentBytes: this.#sentBytes };
  }

  /**
   * Sends the PROXY protocol's header, if the Service wants one. It counts nowhere: the client did not send it. False
   * when that cannot be. Then nothing else may be sent either: a client could pass off its own bytes as the header.
   */
  #introduce(backend: Socket): boolean {
    const { proxyProtocol, setup } = this.port;
    if (proxyProtocol === undefined) return true;
    const client = this.#clientName;
    if (client === undefined) return false;
    const { localAddress, localPort } = this.#client;
    const destination = setup.kernel?.askedFor(client, this.#client) ?? endpointOf(localAddress, localPort);
    if (destination === undefined) return false;
    backend.write(proxyHeader(proxyProtocol, client, destination));
    if (setup.options.tcpUserTimeoutMs > 0) this.#lookLater();
    return true;
  }

  /**
   * Copies one direction, whole and in order, and passes its end on after the last byte. At most the two sockets'
   * high-water marks (64 KiB each) are held in memory: `from` is not read while `to` has not drained.
   *
   * Node does not poll a socket that it does not read, so it misses a reset or end until `to` drains. `#look` asks the
   * kernel meanwhile.
   */
  #copy(from: Socket, to: Socket, counter: 'receivedBytes' | 'sentBytes', target: Target): void {
    from.on('data', (chunk: Buffer) => {
      this.#count(counter, target, chunk.length);
      this.#halfOpen?.moved();
      if (to === this.#backend && this.port.setup.options.tcpUserTimeoutMs > 0) this.#lookLater();
      if (to.write(chunk)) return;
      from.pause();
      this.#lookLater();
    });
    to.on('drain', () => from.resume());
    if (from.readableEnded) to.end();
    else from.once('end', () => to.end());
  }

  #count(counter: 'receivedBytes' | 'sentBytes', target: Target, bytes: number): void {
    if (counter === 'receivedBytes') this.#receivedBytes += bytes;
    else this.#sentBytes += bytes;
    this.port.count(counter, target, bytes);
  }

  #watch(socket: Socket, onBroken = (): void => {}): void {
    this.#openSockets++;
    // 'close' follows every error and handles it. Without a listener, an error would end the process.
    socket.on('error', () => {});
    socket.on('close', (hadError) => {
      if (hadError) {
        this.#broken ??= socket === this.#client ? 'client-reset' : 'backend-reset';
        onBroken();
        this.#settle(socket === this.#client ? this.#backend : this.#client);
      }
      if (--this.#openSockets === 0) this.#over();
    });
  }

  /** Passes on what the endpoint sent before its connection broke. */
  #onEndpointReset(rest: readonly Buffer[], target: Target): void {
    this.#broken ??= 'backend-reset';
    this.port.count('resets', target);
    for (const chunk of rest) {
      this.#count('sentBytes', target, chunk.length);
      if (this.#client.writable) this.#client.write(chunk);
    }
  }

  /** The other side broke. This one is reset when it has received what was sent before. */
  #settle(side: Socket | undefined, giveUpMs = this.port.setup.clock.now() + RESET_PATIENCE_MS): void {
    const { clock, kernel } = this.port.setup;
    const isDelivered =
      side === undefined ||
      side.destroyed ||
      (side.writableLength === 0 && (kernel?.unacknowledgedBytes(side) ?? 0) === 0);
    if (isDelivered || clock.now() >= giveUpMs) this.cut(this.#broken ?? 'proxy-error');
    else this.#settleTimer = clock.after(RESET_POLL_MS, () => this.#settle(side, giveUpMs));
  }

  #over(): void {
    this.#halfOpen?.cancel();
    this.#lookTimer?.cancel();
    this.#settleTimer?.cancel();
    this.finish(this.#broken ?? this.#firstEnd);
  }

  #lookLater(): void {
    const { clock, kernel, options } = this.port.setup;
    if (this.#lookTimer !== undefined || kernel === undefined) return;
    const { tcpUserTimeoutMs, tcpHalfOpenTimeoutMs } = options;
    const intervalMs = lookIntervalMs(Math.min(tcpUserTimeoutMs || tcpHalfOpenTimeoutMs, tcpHalfOpenTimeoutMs));
    const look = (): void => {
      this.#lookTimer = this.#look() ? clock.after(intervalMs, look) : undefined;
    };
    this.#unansweredSinceMs = NEVER;
    this.#lookTimer = clock.after(intervalMs, look);
  }

  /** Whether there is reason to look again. */
  #look(): boolean {
    const { clock, kernel, options } = this.port.setup;
    const backend = this.#backend as Socket;
    let isStalled = false;
    for (const side of [this.#client, backend]) {
      if (!side.isPaused() || side.destroyed) continue;
      isStalled = true;
      // Its end waits behind bytes that the other side does not read.
      if (this.#halfOpen === undefined && kernel?.peerState(side)?.hasEnded) this.#watchHalfOpen();
    }
    if (options.tcpUserTimeoutMs === 0 || kernel?.unacknowledgedBytes(backend) === 0) return isStalled;
    const state = kernel?.peerState(backend);
    if (state === undefined) return isStalled;
    const nowMs = clock.now();
    this.#unansweredSinceMs = unansweredSinceMs(state, this.#unansweredSinceMs, nowMs);
    if (!isDead(state, nowMs - this.#unansweredSinceMs, options.tcpUserTimeoutMs)) return true;
    this.port.count('resets', this.target);
    this.cut('proxy-dead');
    return false;
  }

  #onEnd(ending: Ending): void {
    if (this.#halfOpen === undefined) this.#firstEnd = ending;
    this.#watchHalfOpen();
  }

  #watchHalfOpen(): void {
    const { clock, options } = this.port.setup;
    this.#halfOpen ??= new SilenceTimer(clock, options.tcpHalfOpenTimeoutMs, () => this.#endHalfOpen());
    this.#halfOpen.moved();
  }

  /**
   * A side that has received the other's end is closed: the kernel then delivers the bytes that a slow reader has not
   * read yet. A side that has not is reset, so that it does not take what it has for the whole stream.
   */
  #endHalfOpen(): void {
    this.#broken ??= 'proxy-idle';
    for (const socket of [this.#client, this.#backend]) {
      if (socket?.writableFinished) socket.destroy();
      else if (socket !== undefined) reset(socket);
    }
  }
}

function endpointOf(address: string | undefined, port: number | undefined): Endpoint | undefined {
  return address === undefined || port === undefined ? undefined : { address: unmapped(address) as Address, port };
}

/**
 * Ends a connection with a RST, which the peer cannot take for a clean end. Safe to call at any time.
 *
 * libuv refuses to reset while a shutdown of the writing side is under way (`uv_tcp_close_reset` gives EINVAL), and
 * Node then leaks the descriptor. That is so from the last write's end until 'finish', one turn of the event loop.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (isShuttingDown) socket.once('finish', () => socket.resetAndDestroy());
  else socket.resetAndDestroy();
}
