import type { OpenConnection } from '../../../model/data-plane.ts';
import type { EventLoop, Task } from './event-loop.ts';
import type { PortState } from './port-state.ts';
import type { Command, PortId, Report } from './protocol.ts';

/** A piece takes about 0.2 ms: more than a microsecond for a connection, some nanoseconds for a descriptor in vain. */
const CONNECTIONS_PER_PIECE = 128;
const LOOKS_PER_PIECE = 4096;

type ListCommand = Extract<Command, { kind: 'list' }>;

/**
 * Lists connections and flows a piece at a time, and one piece in a turn of the loop, however many ask: the events of the
 * turn come first. Where a list goes on is a descriptor, so nothing is kept for one that is not asked on, and what comes
 * and goes in between does no harm: nothing changes its descriptor.
 */
export class ConnectionLister implements Task {
  readonly #loop: EventLoop;
  readonly #portOf: (port: PortId) => PortState | undefined;
  readonly #report: (report: Report) => void;
  readonly #waiting: ListCommand[] = [];

  constructor(setup: {
    readonly loop: EventLoop;
    /** `undefined` when it is not open. */
    readonly portOf: (port: PortId) => PortState | undefined;
    readonly report: (report: Report) => void;
  }) {
    this.#loop = setup.loop;
    this.#portOf = setup.portOf;
    this.#report = setup.report;
  }

  /** Answered by a `listed`. */
  list(command: ListCommand): void {
    if (this.#waiting.push(command) === 1) this.#loop.inNextTurn(this);
  }

  run(): void {
    const command = this.#waiting.shift();
    if (command !== undefined) this.#answer(command);
    if (this.#waiting.length > 0) this.#loop.inNextTurn(this);
  }

  #answer({ question, port: id, from }: ListCommand): void {
    const connections: OpenConnection[] = [];
    const port = this.#portOf(id);
    const next =
      port &&
      this.#loop.visitHandlers(from, LOOKS_PER_PIECE, (handler) => {
        const connection = handler.listing?.(port);
        return connection === undefined || connections.push(connection) < CONNECTIONS_PER_PIECE;
      });
    this.#report({ kind: 'listed', question, connections, ...(next !== undefined && { next }) });
  }
}
