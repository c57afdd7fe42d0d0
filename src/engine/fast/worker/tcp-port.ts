import { EPOLLIN } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import { accept, SOCKET_ADDRESS_BYTES } from '../../../sys/socket.ts';
import { decodeAddress } from '../../../sys/socket-address.ts';
import {
  describeErrno,
  EAGAIN,
  ECONNABORTED,
  EHOSTDOWN,
  EHOSTUNREACH,
  EINTR,
  ENETDOWN,
  ENETUNREACH,
  EPERM,
  EPROTO,
  isExhaustion,
  must,
} from '../../../sys/sys-error.ts';
import { Deadline } from './deadlines.ts';
import type { Handler, Task } from './event-loop.ts';
import type { PortState } from './port-state.ts';
import type { CountedBackends } from './protocol.ts';
import { TcpConnection } from './tcp-connection.ts';

/** Clients let in per turn, so that a flood of them leaves room for those who are in. */
const ACCEPTS_PER_TURN = 64;

/** When it closes, in all: more than the kernel's queue holds (`net.core.somaxconn` is 4096 by default). */
const LAST_ACCEPTS = 4096;

/** After a failure that nobody expects. */
const RETRY_MS = 1000;

/** Of one client that has gone already, or of the path to it (accept(2)): the next may be sound. */
const CONCERNS_ONE_CLIENT: ReadonlySet<number> = new Set([
  ECONNABORTED,
  EHOSTDOWN,
  EHOSTUNREACH,
  EINTR,
  ENETDOWN,
  ENETUNREACH,
  EPERM,
  EPROTO,
]);

const clientAddress = new Memory(SOCKET_ADDRESS_BYTES);

/** The listener of one Service port. Accepting never waits for dialling. */
export class TcpPort extends Deadline implements Handler, Task {
  readonly fd: number;
  readonly state: PortState;
  #isClosed = false;
  #lastAccepts = LAST_ACCEPTS;
  #onClosed = (): void => {};

  /** Throws a SysError when the descriptor cannot be watched. */
  constructor(state: PortState, fd: number) {
    super();
    this.fd = fd;
    this.state = state;
    must('epoll_ctl', state.worker.loop.watch(fd, EPOLLIN, this));
  }

  update(backends: CountedBackends): void {
    this.state.update(backends);
  }

  /**
   * Who has connected is let in, and connections go on. True when the descriptor is given back at once; if more are waiting
   * than one turn should accept, `onClosed` is called in a later one.
   */
  close(onClosed: () => void): boolean {
    const { loop, admission } = this.state.worker;
    this.cancelDeadline();
    admission.forget(this);
    loop.unwatch(this.fd);
    this.#isClosed = true;
    this.#onClosed = onClosed;
    return !this.#acceptLast();
  }

  /** It is being closed. */
  run(): void {
    if (!this.#acceptLast()) this.#onClosed();
  }

  onEvents(): void {
    const { admission } = this.state.worker;
    if (!admission.isPaused) this.#acceptSome();
    if (admission.isPaused && !this.#isClosed) admission.hold(this);
  }

  onShutdown(): void {
    this.state.worker.loop.unwatch(this.fd);
  }

  onDue(): void {
    this.state.worker.loop.rewatch(this.fd, EPOLLIN);
  }

  /** Whether there may be more: they come in the next turn. */
  #acceptLast(): boolean {
    this.#lastAccepts -= ACCEPTS_PER_TURN;
    if (!this.#acceptSome() || this.#lastAccepts <= 0) return false;
    this.state.worker.loop.inNextTurn(this);
    return true;
  }

  /** Whether there may be more. */
  #acceptSome(): boolean {
    const { admission, catchUp, loop } = this.state.worker;
    const wasClosed = this.#isClosed;
    for (let i = 0; i < ACCEPTS_PER_TURN; i++) {
      // A command may have closed it meanwhile, which goes on with the others by itself.
      if (admission.isPaused || this.#isClosed !== wasClosed) return false;
      const fd = accept(this.fd, clientAddress);
      if (fd >= 0) {
        loop.own(fd);
        admission.opened(fd, this.state);
        // Decoded before: a command may close a port, which accepts into the same memory.
        const client = decodeAddress(clientAddress.bytes);
        catchUp();
        new TcpConnection(this.state, fd).begin(client);
      } else if (!this.#mayGoOn(-fd)) {
        return false;
      }
    }
    return true;
  }

  #mayGoOn(errno: number): boolean {
    if (errno === EAGAIN) return false;
    if (CONCERNS_ONE_CLIENT.has(errno)) return true;
    const { admission, loop } = this.state.worker;
    if (isExhaustion(errno)) {
      admission.pause(this.state);
      return false;
    }
    if (this.#isClosed) return false;
    // The listener stays ready to read, so going on at once would spin.
    this.state.listenerFailed(`accept: ${describeErrno(errno)}`);
    loop.rewatch(this.fd, 0);
    loop.deadlines.after(RETRY_MS).start(this, loop.nowMs);
    return false;
  }
}
