import type { Address } from '../../../model/address.ts';
import type { OpenConnection } from '../../../model/data-plane.ts';
import type { ProxyProtocol } from '../../../model/service.ts';
import { EPOLLERR, EPOLLHUP, EPOLLOUT } from '../../../sys/epoll.ts';
import { shutdownWrite, unacknowledgedBytes } from '../../../sys/socket.ts';
import { must } from '../../../sys/sys-error.ts';
import { wholeMsLeft } from '../../../util/clock.ts';
import { proxyHeader } from '../../proxy-header.ts';
import { askedFor, clientOf } from '../../tcp-ends.ts';
import type { Target } from './endpoints.ts';
import { keptTcpClient } from './kept-client.ts';
import { type Port, Session } from './port.ts';
import type { EstablishedRecord, LiveRecord } from './records.ts';
import { type DialResult, TcpDial } from './tcp-dial.ts';
import { SIDE_EVENTS, type SideOwner, TcpSide } from './tcp-side.ts';

/** How long bytes that were sent before a reset may take to arrive, and how often to check. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

/**
 * One client, from accept to the end of both sides: it dials ({@link TcpDial}), then {@link TcpSide} moves the bytes of
 * each direction. It handles the events of both descriptors.
 *
 * A reset or failure of one side becomes a reset of the other, never a clean end: a peer must not take half a stream
 * for the whole. Bytes that were sent before the reset arrive first, as without a proxy. The same holds when this
 * program ends a connection. Only a client that gets no endpoint is closed without a reset, as upstream.
 */
export class TcpConnection extends Session implements SideOwner {
  target: Target | undefined;
  readonly #client: TcpSide;
  #backend: TcpSide | undefined;
  /** While dialling; so is the address. */
  #dial: TcpDial | undefined;
  #clientAddress: string | undefined;
  /** One side has ended its direction: something must move. */
  #isHalfOpen = false;
  /** The side that broke, while the other still gets what was sent before. */
  #broken: TcpSide | undefined;
  #giveUpMs = 0;

  /** `clientFd` is not watched yet. Next is {@link begin}, {@link resume} or {@link redial}. */
  constructor(port: Port, clientFd: number) {
    super(port, clientFd);
    this.#client = new TcpSide(this, clientFd, 'client');
  }

  /** The client was accepted just now. May be over before this returns. */
  begin(clientAddress: string): void {
    this.port.begin();
    this.#dialFor(clientAddress);
  }

  /** Continues where another process was. Throws a SysError when a descriptor cannot be watched. */
  resume({ sides: [client, backend], broken }: EstablishedRecord, target: Target): void {
    const { loop } = this.port.worker;
    this.#join(target, new TcpSide(this, backend.fd, 'endpoint'));
    for (const [side, record] of [
      [this.#client, client],
      [this.#backend as TcpSide, backend],
    ] as const) {
      loop.own(record.fd);
      side.resume(record);
      must('epoll_ctl', loop.watch(record.fd, SIDE_EVENTS, this));
    }
    this.resumed();
    if (broken !== undefined) {
      this.#broken = broken === 'client' ? this.#client : this.#backend;
      this.#giveUpMs = loop.nowMs + RESET_PATIENCE_MS;
      this.#wait(RESET_POLL_MS);
    } else if (client.isShut || backend.isShut) {
      this.#beginHalfOpen();
    }
  }

  /** Another process accepted the client and was still dialling. */
  redial(clientAddress: string): void {
    const { loop } = this.port.worker;
    loop.own(this.fd);
    this.resumed();
    this.#clientAddress = clientAddress;
    loop.inNextTurn({ run: () => this.#dialFor(clientAddress) });
  }

  record(): LiveRecord {
    const { fd } = this;
    const { id: port } = this.port;
    if (this.#backend === undefined) return { kind: 'dialling', port, fd, client: this.#clientAddress as Address };
    return {
      kind: 'established',
      port,
      endpoint: (this.target as Target).endpoint,
      sides: [this.#client.record(), this.#backend.record()],
      broken: this.#broken && (this.#broken === this.#client ? 'client' : 'backend'),
    };
  }

  describe(): OpenConnection | undefined {
    // Read only for a list, because few connections are ever listed.
    const client = clientOf(this.fd);
    if (client === undefined) return undefined;
    if (this.target === undefined) return { client, endpoint: this.#dial?.endpoint, state: 'dialling' };
    const { endpoint } = this.target;
    const endMs = this.#broken === undefined ? this.dueMs : this.#giveUpMs;
    if (this.#broken === undefined && !this.#isHalfOpen) return { client, endpoint, state: 'established' };
    return { client, endpoint, state: 'half-closed', expiresMs: wholeMsLeft(endMs - this.port.worker.loop.nowMs) };
  }

  onEvents(events: number, fd: number): void {
    if (this.#dial === undefined) {
      this.#onSide(fd === this.fd ? this.#client : (this.#backend as TcpSide), events);
    } else if (fd !== this.fd) {
      this.#dial.onEvents(events);
    } else {
      this.#client.note(events);
      // The client reset the connection. One that has only ended its direction still wants an answer.
      if (events & (EPOLLERR | EPOLLHUP)) this.#end();
    }
  }

  onConnected({ target, fd, events, isBroken }: DialResult): void {
    const client = this.#client;
    const backend = new TcpSide(this, fd, 'endpoint');
    this.#dial = undefined;
    this.#clientAddress = undefined;
    this.#join(target, backend);
    if (isBroken) {
      this.#breakOff(backend);
      return;
    }
    const { proxyProtocol } = this.port;
    if (proxyProtocol !== undefined && !this.#introduce(proxyProtocol)) return;
    // Most clients send first, and have done so by now.
    client.isReadable = true;
    this.#pump(client);
    if (!this.isOver) this.#onSide(backend, events);
  }

  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void {
    this.port.clientRefused(this.#clientAddress as string, reason);
    this.#end();
  }

  onPortion(side: TcpSide): void {
    if (this.isOver) return;
    if (this.#broken === undefined) this.#pump(side);
    else this.#settle();
  }

  onDead(side: TcpSide): void {
    if (this.#isOpen()) this.#breakOff(side);
  }

  moved(): void {
    if (this.#isHalfOpen) this.#wait(this.port.worker.options.tcpHalfOpenTimeoutMs);
  }

  onDue(): void {
    if (this.#broken !== undefined) this.#settle();
    else this.#endHalfOpen();
  }

  cut(): void {
    this.#over((fd) => this.port.worker.loop.reset(fd));
  }

  #dialFor(clientAddress: string): void {
    const { loop } = this.port.worker;
    this.#clientAddress = clientAddress;
    const pick = this.port.endpoints.picker.pick(clientAddress, loop.nowMs);
    const client = keptTcpClient(this.port, this.fd, clientAddress);
    if (client === 'unknown' || loop.watch(this.fd, SIDE_EVENTS, this) < 0) {
      this.cut();
      return;
    }
    this.#dial = new TcpDial({ port: this.port, pick, client, dialler: this });
    this.#dial.start();
  }

  /**
   * Puts the PROXY protocol's header before all that the endpoint gets. False when the connection is over, because the
   * client has gone. Without a header, a client could pass off its own bytes as one.
   */
  #introduce(version: ProxyProtocol): boolean {
    const client = clientOf(this.fd);
    const destination = client && askedFor(client, this.fd);
    if (client === undefined || destination === undefined) {
      this.#end();
      return false;
    }
    this.#client.beginWith(proxyHeader(version, client, destination));
    return true;
  }

  #join(target: Target, backend: TcpSide): void {
    this.target = target;
    this.#backend = backend;
    backend.peer = this.#client;
    this.#client.peer = backend;
    this.port.connectedTo(target);
  }

  #isOpen(): boolean {
    return !this.isOver && this.#broken === undefined;
  }

  #onSide(side: TcpSide, events: number): void {
    side.note(events);
    if (this.#broken !== undefined) {
      this.#settle();
      return;
    }
    if (side.isReadable) this.#pump(side);
    const peer = side.peer as TcpSide;
    if (events & EPOLLOUT && peer.pending > 0 && this.#isOpen()) this.#pump(peer);
    // The pump did not read the error: the stream had ended before, or waits for the other side.
    if (events & EPOLLERR && this.#isOpen()) this.#breakOff(side);
  }

  #pump(side: TcpSide): void {
    const broken = side.pump();
    if (broken !== undefined) {
      this.#breakOff(broken);
      return;
    }
    const peer = side.peer as TcpSide;
    if (!side.hasEnded || side.pending > 0) {
      // Its end waits behind bytes that the peer does not take.
      if (side.endIsNear && !this.#isHalfOpen) this.#beginHalfOpen();
      return;
    }
    if (peer.isShut) return;
    if (peer.hasEnded && peer.pending === 0) {
      this.#end();
      return;
    }
    // Fails only for a broken side, which has an event of its own.
    shutdownWrite(peer.fd);
    peer.isShut = true;
    peer.wasSent();
    this.#beginHalfOpen();
  }

  #beginHalfOpen(): void {
    this.#isHalfOpen = true;
    this.moved();
  }

  /**
   * A side that has received the other's end is closed: the kernel then delivers the bytes that a slow reader has not
   * read yet. A side that has not is reset, so that it does not take what it has for the whole stream.
   */
  #endHalfOpen(): void {
    const { loop } = this.port.worker;
    this.#over((fd, side) => {
      if (side.isShut) loop.close(fd);
      else loop.reset(fd);
    });
  }

  #breakOff(side: TcpSide): void {
    if (side === this.#backend) this.port.count('resets', this.target);
    this.#broken = side;
    // The kernel reports the error before it gives out the last bytes.
    side.isReadable = !side.hasEnded;
    this.#isHalfOpen = false;
    side.peer?.release();
    this.#giveUpMs = this.port.worker.loop.nowMs + RESET_PATIENCE_MS;
    this.#settle();
  }

  /**
   * Passes on what the broken side had sent, then the reset. It waits until the peer has acknowledged everything,
   * because a reset makes the kernel drop queued bytes.
   */
  #settle(): void {
    const side = this.#broken as TcpSide;
    const peer = side.peer as TcpSide;
    const isPeerBroken = side.pump() === peer;
    const isRead = !side.isReadable || side.hasEnded;
    const isDelivered = isRead && side.pending === 0 && unacknowledgedBytes(peer.fd) <= 0;
    if (isPeerBroken || isDelivered || this.port.worker.loop.nowMs >= this.#giveUpMs) this.cut();
    else this.#wait(RESET_POLL_MS);
  }

  #wait(ms: number): void {
    const { loop } = this.port.worker;
    loop.deadlines.after(ms).start(this, loop.nowMs);
  }

  /** A clean end of both sides; the kernel delivers the bytes that it holds. */
  #end(): void {
    this.#over((fd) => this.port.worker.loop.close(fd));
  }

  #over(close: (fd: number, side: TcpSide) => void): void {
    if (!this.finish()) return;
    this.#dial?.cancel();
    this.#dial = undefined;
    for (const side of [this.#client, this.#backend]) {
      if (side === undefined) continue;
      side.release();
      close(side.fd, side);
    }
  }
}
