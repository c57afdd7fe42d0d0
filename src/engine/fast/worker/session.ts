import type { Ending } from '../../../model/connection-log.ts';
import { Session as CoreSession } from '../../core/session.ts';
import { Deadline } from './deadlines.ts';
import type { Handler } from './event-loop.ts';
import type { Errand } from './link.ts';
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
  /** If another worker is its home, which has not died: that one counts it. */
  protected errand: Errand | undefined;

  constructor(port: Port, fd: number, errand?: Errand) {
    super(port);
    this.fd = fd;
    this.errand = errand?.isHomeThere ? errand : undefined;
  }

  abstract onEvents(events: number, fd: number): void;
  abstract onDue(): void;
  /** What another process needs to continue it. */
  abstract record(): SessionRecord;

  onShutdown(): void {
    this.cut('proxy-shutdown');
  }

  get hasLostHome(): boolean {
    return this.errand?.isHomeThere === false;
  }

  /** It has lost its home, and goes on: nobody else counts it. */
  stay(): void {
    this.errand = undefined;
    this.port.countActive(1, this.target);
  }

  protected override get countsHere(): boolean {
    return this.errand === undefined;
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
