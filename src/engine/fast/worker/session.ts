import type { Ending } from '../../../model/connection-log.ts';
import { Session as CoreSession } from '../../core/session.ts';
import { Deadline } from './deadlines.ts';
import type { Handler } from './event-loop.ts';
import type { Port } from './port.ts';
import type { SessionRecord } from './records.ts';
import type { Target } from './target.ts';

/** A TCP connection or a UDP flow of one worker. */
export abstract class Session extends CoreSession<Port> implements Handler {
  /** The client's of a TCP connection. */
  readonly fd: number;
  /** Calls {@link onDue}. */
  protected readonly timer = new Deadline(this);
  abstract override readonly target: Target | undefined;

  constructor(port: Port, fd: number) {
    super(port);
    this.fd = fd;
  }

  abstract onEvents(events: number, fd: number): void;
  abstract onDue(): void;
  /** What another process needs to continue it. */
  abstract record(): SessionRecord;

  onShutdown(): void {
    this.cut('proxy-shutdown');
  }

  protected override detach(): void {
    super.detach();
    this.timer.cancel();
  }

  protected override finish(ending: Ending): boolean {
    const isOver = super.finish(ending);
    if (isOver) this.port.worker.admission.freed();
    return isOver;
  }
}
