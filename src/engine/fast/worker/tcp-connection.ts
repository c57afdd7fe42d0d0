import type { Address } from '../../../model/address.ts';
import type { OpenConnection } from '../../../model/data-plane.ts';
import { EPOLLERR, EPOLLHUP, EPOLLOUT } from '../../../sys/epoll.ts';
import { shutdownWrite, unacknowledgedBytes } from '../../../sys/socket.ts';
import { must } from '../../../sys/sys-error.ts';
import { wholeMsLeft } from '../../../util/clock.ts';
import { clientOf } from './client-of.ts';
import { Deadline } from './deadlines.ts';
import type { Target } from './endpoint-table.ts';
import type { PortState } from './port-state.ts';
import type { EstablishedRecord, LiveRecord } from './records.ts';
import { type Dialler, TcpDial } from './tcp-dial.ts';
import { SIDE_EVENTS, TcpSide } from './tcp-side.ts';

/** How long bytes that were sent before a reset may take to arrive, and how often to look. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

/**
 * One client, from accept to the end of both sides.
 *
 * A reset or failure of one side is a reset of the other, never a clean end, so that nobody takes half a stream for a
 * whole one; what was sent before it arrives first, as it would without a proxy. The same holds where this program cuts
 * a connection itself. Only a client for whom there is no endpoint is closed without a reset, as upstream.
 */
export class TcpConnection extends Deadline implements Dialler {
  readonly port: PortState;
  /** The endpoint that answered. */
  target: Target | undefined;
  readonly #client: TcpSide;
  #backend: TcpSide | undefined;
  /** While dialling, and so is the address. */
  #dial: TcpDial | undefined;
  #clientAddress: string | undefined;
  /** One side has ended its direction: something must move. */
  #isHalfOpen = false;
  /** The side that broke, while the other is still to get what came before. */
  #broken: TcpSide | undefined;
  #giveUpMs = 0;
  #isOver = false;

  /** `clientFd` is not watched yet. One of {@link begin}, {@link resume} and {@link redial} is due next. */
  constructor(port: PortState, clientFd: number) {
    super();
    this.port = port;
    this.#client = new TcpSide(this, clientFd, 'client');
  }

  /** The client has been let in just now. May be over before it returns. */
  begin(clientAddress: string): void {
    this.port.begin();
    this.#dialFor(clientAddress);
  }

  /** Goes on where another process was. Throws a SysError when a descriptor cannot be watched. */
  resume({ sides: [client, backend], broken }: EstablishedRecord, target: Target): void {
    const { loop } = this.port.worker;
    this.#join(target, new TcpSide(this, backend.fd, 'endpoint'));
    for (const [side, record] of [
      [this.#client, client],
      [this.#backend as TcpSide, backend],
    ] as const) {
      loop.own(record.fd);
      side.resume(record);
      must('epoll_ctl', loop.watch(record.fd, SIDE_EVENTS, side));
    }
    this.port.resumed(target);
    if (broken !== undefined) {
      this.#broken = broken === 'client' ? this.#client : this.#backend;
      this.#giveUpMs = loop.nowMs + RESET_PATIENCE_MS;
      loop.deadlines.after(RESET_POLL_MS).start(this, loop.nowMs);
    } else if (client.isShut || backend.isShut) {
      this.#beginHalfOpen();
    }
  }

  /** Another process let the client in, and was still dialling. */
  redial(clientAddress: string): void {
    const { loop } = this.port.worker;
    loop.own(this.#client.fd);
    this.port.resumed(undefined);
    loop.inNextTurn({ run: () => this.#dialFor(clientAddress) });
  }

  describe(side: TcpSide): LiveRecord | undefined {
    if (side !== this.#client) return undefined;
    const { id: port } = this.port;
    if (this.#backend === undefined) {
      return { kind: 'dialling', port, fd: side.fd, client: this.#clientAddress as Address };
    }
    return {
      kind: 'established',
      port,
      endpoint: (this.target as Target).endpoint,
      sides: [side.record(), this.#backend.record()],
      broken: this.#broken && (this.#broken === side ? 'client' : 'backend'),
    };
  }

  /** `undefined` for another port, the other side, and a client that has gone just now. */
  listing(side: TcpSide, port: PortState): OpenConnection | undefined {
    if (port !== this.port || side !== this.#client) return undefined;
    const client = clientOf(side.fd);
    if (client === undefined) return undefined;
    if (this.target === undefined) return { client, endpoint: this.#dial?.endpoint, state: 'dialling' };
    const { endpoint } = this.target;
    const endMs = this.#broken === undefined ? this.dueMs : this.#giveUpMs;
    if (this.#broken === undefined && !this.#isHalfOpen) return { client, endpoint, state: 'established' };
    return { client, endpoint, state: 'half-closed', expiresMs: wholeMsLeft(endMs - this.port.worker.loop.nowMs) };
  }

  onConnected({ target, fd, events, isBroken }: Parameters<Dialler['onConnected']>[0]): void {
    const client = this.#client;
    const backend = new TcpSide(this, fd, 'endpoint');
    this.port.worker.loop.passTo(fd, backend);
    this.#dial = undefined;
    this.#clientAddress = undefined;
    this.#join(target, backend);
    if (isBroken) {
      this.#breakOff(backend);
      return;
    }
    // Most clients speak first, and have by now.
    client.isReadable = true;
    this.#pump(client);
    if (!this.#isOver) backend.onEvents(events);
  }

  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void {
    this.port.turnedAway({ client: this.#clientAddress as string, reason });
    this.#end();
  }

  onSideEvents(side: TcpSide, events: number): void {
    if (this.#dial !== undefined) {
      // It reset the connection. One that has only ended its direction still wants an answer.
      if (events & (EPOLLERR | EPOLLHUP)) this.#end();
      return;
    }
    if (this.#broken !== undefined) {
      this.#settle();
      return;
    }
    if (side.isReadable) this.#pump(side);
    const peer = side.peer as TcpSide;
    if (events & EPOLLOUT && peer.pending > 0 && this.#isOpen()) this.#pump(peer);
    // Not yet noticed: the stream was at its end before, or is held up by the other side.
    if (events & EPOLLERR && this.#isOpen()) this.#breakOff(side);
  }

  /** There is another portion of a turn for this side's stream. */
  onPortion(side: TcpSide): void {
    if (this.#isOver) return;
    if (this.#broken === undefined) this.#pump(side);
    else this.#settle();
  }

  /** It has not acknowledged anything for too long. */
  onDead(side: TcpSide): void {
    if (this.#isOpen()) this.#breakOff(side);
  }

  endpointsGone(port: PortState, names: ReadonlySet<string>): void {
    if (this.port === port && this.target !== undefined && names.has(this.target.name)) this.cut();
  }

  /** Something has moved. */
  moved(): void {
    if (this.#isHalfOpen) this.#watchHalfOpen();
  }

  /** Ends both sides at once. */
  cut(): void {
    this.#over((fd) => this.port.worker.loop.reset(fd));
  }

  onDue(): void {
    if (this.#broken !== undefined) this.#settle();
    else this.#endHalfOpen();
  }

  #dialFor(clientAddress: string): void {
    const { loop } = this.port.worker;
    this.#clientAddress = clientAddress;
    this.#dial = new TcpDial({
      port: this.port,
      pick: this.port.picker.pick(clientAddress, loop.nowMs),
      dialler: this,
    });
    if (loop.watch(this.#client.fd, SIDE_EVENTS, this.#client) < 0) this.cut();
    else this.#dial.start();
  }

  #join(target: Target, backend: TcpSide): void {
    this.target = target;
    this.#backend = backend;
    backend.peer = this.#client;
    this.#client.peer = backend;
    this.port.connectedTo(target);
  }

  #isOpen(): boolean {
    return !this.#isOver && this.#broken === undefined;
  }

  #pump(side: TcpSide): void {
    const broken = side.pump();
    if (broken !== undefined) {
      this.#breakOff(broken);
      return;
    }
    const peer = side.peer as TcpSide;
    if (!side.hasEnded || side.pending > 0) {
      // Its end waits behind what the peer does not take: from now on something must move.
      if (side.endIsNear && !this.#isHalfOpen) this.#beginHalfOpen();
      return;
    }
    if (peer.isShut) return;
    if (peer.hasEnded && peer.pending === 0) {
      this.#end();
      return;
    }
    // Fails only for a side that is broken, which an event of its own tells.
    shutdownWrite(peer.fd);
    peer.isShut = true;
    peer.wasSent();
    this.#beginHalfOpen();
  }

  #beginHalfOpen(): void {
    this.#isHalfOpen = true;
    this.#watchHalfOpen();
  }

  #watchHalfOpen(): void {
    const { loop, options } = this.port.worker;
    loop.deadlines.after(options.tcpHalfOpenTimeoutMs).start(this, loop.nowMs);
  }

  /**
   * The side that still owes its end has had the other's: closing it lets the kernel deliver what may still be on the
   * way to a slow reader. The side that waits for the rest must not take what it has for all, so it is reset.
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
    // What it sent before may still lie in the kernel: the error comes first.
    side.isReadable = !side.hasEnded;
    this.#isHalfOpen = false;
    side.peer?.release();
    this.#giveUpMs = this.port.worker.loop.nowMs + RESET_PATIENCE_MS;
    this.#settle();
  }

  /**
   * Passes on what the broken side had sent, then the reset. The wait for the peer's acknowledgement is what keeps the
   * kernel from throwing bytes away that are still queued when the reset is sent.
   */
  #settle(): void {
    const { loop } = this.port.worker;
    const side = this.#broken as TcpSide;
    const peer = side.peer as TcpSide;
    const isPeerBroken = side.pump() === peer;
    const isRead = !side.isReadable || side.hasEnded;
    const isDelivered = isRead && side.pending === 0 && unacknowledgedBytes(peer.fd) <= 0;
    if (isPeerBroken || isDelivered || loop.nowMs >= this.#giveUpMs) this.cut();
    else loop.deadlines.after(RESET_POLL_MS).start(this, loop.nowMs);
  }

  /** A clean end of both sides; bytes that the kernel still holds are delivered. */
  #end(): void {
    this.#over((fd) => this.port.worker.loop.close(fd));
  }

  #over(close: (fd: number, side: TcpSide) => void): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.cancelDeadline();
    this.#dial?.cancel();
    this.#dial = undefined;
    this.port.end(this.target);
    for (const side of [this.#client, this.#backend]) {
      if (side === undefined) continue;
      side.release();
      close(side.fd, side);
    }
    this.port.worker.admission.freed();
  }
}
