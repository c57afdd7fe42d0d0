import { Session } from '../../core/session.ts';
import type { Handler } from './event-loop.ts';
import type { Port } from './port.ts';
import type { SessionRecord } from './records.ts';

/** A TCP connection or a UDP flow, to its worker. */
export interface WorkerSession extends Session<Port>, Handler {
  /** The client's of a TCP connection. */
  readonly fd: number;
  /** What another process needs to continue it. */
  record(): SessionRecord;
}

export function isSession(handler: object | undefined): handler is WorkerSession {
  return handler instanceof Session;
}
