import { EPOLLIN } from '../../../sys/epoll.ts';
import { describeErrno, must } from '../../../sys/sys-error.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Handler } from './event-loop.ts';
import type { Port } from './port.ts';
import type { CountedBackends } from './protocol.ts';

/** After an unexpected failure of a listening socket. */
const RETRY_MS = 1000;

/** The listening socket of one port. The main thread lends it, so it stays open when this ends. */
export abstract class Listener implements Handler {
  readonly port: Port;
  readonly fd: number;
  /** After a failure, it goes on then. */
  protected readonly retry = new Deadline(this);

  /** Throws a SysError when the descriptor cannot be watched. */
  constructor(port: Port, fd: number) {
    this.port = port;
    this.fd = fd;
    must('epoll_ctl', port.worker.loop.watch(fd, EPOLLIN, this));
  }

  abstract onEvents(events: number, fd: number): void;

  /** Stops listening. True when the descriptor is given back at once; else `onClosed` is called in a later turn. */
  abstract close(onClosed: () => void): boolean;

  update(backends: CountedBackends): void {
    this.port.update(backends);
  }

  onShutdown(): void {
    this.port.worker.loop.unwatch(this.fd);
  }

  onDue(): void {
    this.rewatch(EPOLLIN);
  }

  protected rewatch(events: number): void {
    this.port.worker.loop.rewatch(this.fd, events);
  }

  /** After an unexpected failure the socket stays ready to read, so a retry at once could spin. */
  protected retryAfter(call: string, errno: number): void {
    const { loop } = this.port.worker;
    this.port.listenerFailed(`${call}: ${describeErrno(errno)}`);
    this.rewatch(0);
    loop.chores.after(RETRY_MS).start(this.retry, loop.nowMs);
  }
}
