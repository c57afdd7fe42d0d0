import type { Address } from '../../../model/address.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import { accept, SOCKET_ADDRESS_BYTES } from '../../../sys/socket.ts';
import { addressIn, portIn } from '../../../sys/socket-address.ts';
import {
  describeErrno,
  EAGAIN,
  ECONNABORTED,
  EHOSTDOWN,
  EHOSTUNREACH,
  ENETDOWN,
  ENETUNREACH,
  EPERM,
  EPROTO,
  isExhaustion,
} from '../../../sys/sys-error.ts';
import type { Task } from './event-loop.ts';
import { Listener } from './listener.ts';
import { TcpConnection } from './tcp-connection.ts';

/** The most clients of one listener accepted per turn, so that a flood leaves time for those who are connected. */
const ACCEPTS_PER_TURN = 64;

/** Clients accepted while closing: more than the kernel's queue holds (`net.core.somaxconn` is 4096 by default). */
const LAST_ACCEPTS = 4096;

/** Errors of one client that has gone already, or of the path to it (accept(2)). The next client may be fine. */
const CONCERNS_ONE_CLIENT: ReadonlySet<number> = new Set([
  ECONNABORTED,
  EHOSTDOWN,
  EHOSTUNREACH,
  ENETDOWN,
  ENETUNREACH,
  EPERM,
  EPROTO,
]);

const clientAddress = new Memory(SOCKET_ADDRESS_BYTES);
const clientName = clientAddress.words();

/** Accepts the clients of one Service port. Accepting never waits for dialling. */
export class TcpListener extends Listener implements Task {
  #isClosed = false;
  #lastAccepts = LAST_ACCEPTS;
  /** How many are accepted in one turn. Another one is in the next: asking whether there is one costs a call. */
  #portion = 1;
  #lastTurn = 0;
  #onClosed = (): void => {};

  /** Accepts the clients that have connected, in this turn and in later ones. */
  close(onClosed: () => void): boolean {
    const { loop, admission } = this.port.worker;
    this.retry.cancel();
    admission.forget(this);
    loop.unwatch(this.fd);
    this.#isClosed = true;
    this.#onClosed = onClosed;
    return !this.#acceptLast();
  }

  run(): void {
    if (!this.#acceptLast()) this.#onClosed();
  }

  onEvents(): void {
    this.#acceptPortion();
    if (this.#isClosed || this.#admitsOneMore()) return;
    this.rewatch(0);
    this.port.worker.admission.hold(this);
  }

  /** It is not watched, and may accept a client again. */
  goOn(): void {
    this.#acceptPortion();
    // A failure has its own time to go on.
    if (this.#isClosed || this.retry.isWaiting) return;
    if (this.#admitsOneMore()) this.rewatch(EPOLLIN);
    else this.port.worker.admission.hold(this);
  }

  #admitsOneMore(): boolean {
    return this.port.worker.admission.admits(this.port.share);
  }

  /** Whether there may be more: they are accepted in the next turn. */
  #acceptLast(): boolean {
    this.#lastAccepts -= ACCEPTS_PER_TURN;
    if (this.#acceptSome(ACCEPTS_PER_TURN) < ACCEPTS_PER_TURN || this.#lastAccepts <= 0) return false;
    this.port.worker.loop.inNextTurn(this);
    return true;
  }

  /** It doubles from turn to turn while there are more. */
  #acceptPortion(): void {
    const { acceptBudget, loop } = this.port.worker;
    const { turns } = loop;
    if (turns !== this.#lastTurn + 1) this.#portion = 1;
    this.#lastTurn = turns;
    const portion = Math.min(this.#portion, acceptBudget.portion());
    const accepted = this.#acceptSome(portion);
    const mayHaveMore = accepted === portion;
    this.#portion = mayHaveMore ? Math.min(portion * 2, ACCEPTS_PER_TURN) : Math.max(accepted, 1);
  }

  /** How many; fewer than `atMost` when there are no more for now. */
  #acceptSome(atMost: number): number {
    const { catchUp, loop } = this.port.worker;
    const wasClosed = this.#isClosed;
    for (let i = 0; i < atMost; i++) {
      // A command may have closed this listener meanwhile; closing accepts the others.
      if (this.#isClosed !== wasClosed || !this.#admitsOneMore()) return i;
      const fd = accept(this.fd, clientAddress);
      if (fd >= 0) {
        loop.own(fd);
        // Decoded first: a command may close a port, which accepts into the same memory.
        const client = { address: addressIn(clientName) as Address, port: portIn(clientName) };
        catchUp();
        new TcpConnection(this.port, fd, client).begin();
      } else if (!this.#mayGoOn(-fd)) {
        return i;
      }
    }
    return atMost;
  }

  #mayGoOn(errno: number): boolean {
    if (errno === EAGAIN) return false;
    if (CONCERNS_ONE_CLIENT.has(errno)) return true;
    const { admission } = this.port.worker;
    if (isExhaustion(errno)) {
      if (admission.makeRoom()) return true;
      admission.pause(this.port, describeErrno(errno));
    } else if (!this.#isClosed) this.retryAfter('accept', errno);
    return false;
  }
}
