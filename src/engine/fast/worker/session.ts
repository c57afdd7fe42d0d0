import { Deadline } from '../../core/deadlines.ts';
import { Session as CoreSession } from '../../core/session.ts';
import type { Handler } from './event-loop.ts';
import type { Errand } from './link.ts';
import type { Port } from './port.ts';
import type { SessionRecord } from './records.ts';
import type { Target } from './target.ts';

/** A TCP connection or a UDP flow, to its worker. */
export interface WorkerSession extends CoreSession<Port, Errand>, Handler {
  /** The client's of a TCP connection. */
  readonly fd: number;
  /** What another process needs to continue it. */
  record(): SessionRecord;
}

export function isSession(handler: object | undefined): handler is WorkerSession {
  return handler instanceof CoreSession;
}

/** A UDP flow of one worker. */
export abstract class Session extends CoreSession<Port, Errand> implements WorkerSession {
  readonly fd: number;
  /** Calls {@link onDue}. */
  protected readonly timer = new Deadline(this);
  abstract override readonly target: Target | undefined;

  constructor(port: Port, fd: number, errand?: Errand) {
    super(port, errand);
    this.fd = fd;
  }

  abstract onEvents(events: number, fd: number): void;
  abstract onDue(): void;
  abstract record(): SessionRecord;

  onShutdown(): void {
    this.cut('proxy-shutdown');
  }

  protected override detach(): void {
    super.detach();
    this.timer.cancel();
  }
}
