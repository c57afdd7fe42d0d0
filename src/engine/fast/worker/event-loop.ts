import { close, eventfd, signal, waitReadable } from '../../../sys/descriptor.ts';
import { EPOLLET, EPOLLIN, Epoll } from '../../../sys/epoll.ts';
import { resetOnClose } from '../../../sys/socket.ts';
import { EINTR, must } from '../../../sys/sys-error.ts';
import type { Clock } from '../../../util/clock.ts';
import { type Deadline, Deadlines, type Loop, type Task } from '../../core/deadlines.ts';
import { STATUS } from './protocol.ts';

export type { Task };

export interface Handler {
  /** `events`: EPOLL… bits of the descriptor `fd`. */
  onEvents(events: number, fd: number): void;
  /** The worker ends: reset or close what belongs to this handler. */
  onShutdown(): void;
}

/** So few that handling one event of each takes a few milliseconds. */
const EVENTS_PER_TURN = 128;

export interface EventLoopSetup {
  readonly clock: Clock;
  /** Marks a descriptor in `owners` as this worker's. Not 0. */
  readonly owner: number;
  readonly owners: Uint8Array;
  readonly status: Int32Array;
  /** A turn begins that has waited so long. */
  readonly onWaited: (nowMs: number, waitedMs: number) => void;
  /** This handler or task, or what it runs, has thrown. Throws when the worker must end. */
  readonly onFault: (err: unknown, thrower: object) => void;
}

/**
 * Waits for events and calls the handler of the descriptor. It also keeps the worker's descriptors, and is the only
 * place that closes them.
 *
 * The kernel gives out a closed descriptor's number again, also while older events of the same batch are still to be
 * handled. (And epoll goes on reporting a closed descriptor while a child process that was forked in between has a copy
 * of it.) So each watch has a generation of its own, which epoll returns with every event. An event of another
 * generation is dropped.
 */
export class EventLoop implements Loop {
  /** Those that an event may cancel: see {@link turn}. */
  readonly deadlines = new Deadlines();
  /** Those that no event cancels: they expire in each turn. */
  readonly chores = new Deadlines();
  /** When the current event or task of this turn began: monotonic milliseconds. */
  nowMs: number;
  readonly clock: Clock;
  readonly #owner: number;
  readonly #owners: Uint8Array;
  readonly #status: Int32Array;
  readonly #onWaited: EventLoopSetup['onWaited'];
  readonly onFault: EventLoopSetup['onFault'];
  readonly #epoll = new Epoll(EVENTS_PER_TURN);
  readonly #handlers: (Handler | undefined)[] = [];
  /** By descriptor, too. */
  readonly #generations: Int32Array;
  #lastGeneration = 0;
  /** By descriptor: its last turn. To clear a set each turn would be garbage, in V8's old generation at once. */
  readonly #renewedIn: Float64Array;
  /** Unlike {@link turns} it never begins again. */
  #turn = 0;
  #nextTurn: Task[] = [];
  readonly #endOfTurn: Task[] = [];
  #spare: Task[] = [];
  /** Signalled when a turn may leave ready events unhandled. Its event comes behind all of them. */
  readonly #marker = must('eventfd', eventfd());
  /** The deadlines that wait for the marker are due by then. Infinity: it is not under way. */
  #markedMs = Number.POSITIVE_INFINITY;
  #isMarkerThere = false;

  constructor({ clock, owner, owners, status, onWaited, onFault }: EventLoopSetup) {
    this.clock = clock;
    this.#owner = owner;
    this.#owners = owners;
    this.#status = status;
    this.#onWaited = onWaited;
    this.onFault = onFault;
    this.#generations = new Int32Array(owners.length);
    this.#renewedIn = new Float64Array(owners.length);
    this.nowMs = clock.now();
    this.own(must('epoll_create1', this.#epoll.fd));
    this.own(this.#marker);
    const marker: Handler = {
      onEvents: () => {
        this.#isMarkerThere = true;
      },
      onShutdown: () => this.close(this.#marker),
    };
    must('epoll_ctl', this.watch(this.#marker, EPOLLIN | EPOLLET, marker));
  }

  /** By descriptor. A handler that watches two is here twice. */
  get handlers(): readonly (Handler | undefined)[] {
    return this.#handlers;
  }

  get turns(): number {
    return this.#status[STATUS.turns] as number;
  }

  /**
   * This worker has opened the descriptor, or has it from another process. If this thread dies and is not frozen, the
   * main thread closes it.
   */
  own(fd: number): void {
    this.#owners[fd] = this.#owner;
  }

  /** It is that worker's from now on. */
  give(fd: number, worker: number): void {
    this.#owners[fd] = worker + 1;
  }

  close(fd: number): void {
    if (fd < this.#handlers.length) this.#handlers[fd] = undefined;
    // Before the close: afterwards another thread may get the number.
    this.#owners[fd] = 0;
    close(fd);
  }

  /** The peer gets a RST. */
  reset(fd: number): void {
    resetOnClose(fd);
    this.close(fd);
  }

  /** 0, or a negative errno. The descriptor may be a lent one. */
  watch(fd: number, events: number, handler: Handler): number {
    this.#lastGeneration = (this.#lastGeneration + 1) | 0;
    const status = this.#epoll.add(fd, events, this.#lastGeneration);
    if (status < 0) return status;
    this.#generations[fd] = this.#lastGeneration;
    // A write far behind its end would make the array a hash table.
    while (this.#handlers.length < fd) this.#handlers.push(undefined);
    this.#handlers[fd] = handler;
    return 0;
  }

  /**
   * A watched socket begins a new life, with this handler. Events of this turn are of its former one, and are dropped.
   * The next wait asks the kernel again.
   */
  renew(fd: number, handler: Handler): void {
    this.#handlers[fd] = handler;
    this.#renewedIn[fd] = this.#turn;
  }

  rewatch(fd: number, events: number): void {
    must('epoll_ctl', this.#epoll.modify(fd, events, this.#generations[fd] as number));
  }

  /** For a lent descriptor: it stays open. */
  unwatch(fd: number): void {
    this.#handlers[fd] = undefined;
    this.#epoll.remove(fd);
  }

  start(deadline: Deadline, delayMs: number): void {
    this.deadlines.after(delayMs).start(deadline, this.nowMs);
  }

  startChore(deadline: Deadline, delayMs: number): void {
    this.chores.after(delayMs).start(deadline, this.nowMs);
  }

  /** Runs in the next turn, after its events. That turn does not wait for events. */
  inNextTurn(task: Task): void {
    this.#nextTurn.push(task);
  }

  atEndOfTurn(task: Task): void {
    this.#endOfTurn.push(task);
  }

  /**
   * Waits for events, at most `maxWaitMs`, and handles all that is due.
   *
   * After a standstill of the process or of the machine, deadlines have passed, and events that came in time to cancel
   * them are ready. So events come first, and a deadline expires only if it had passed before a wait that returned all
   * ready events. A wait that a signal interrupts, such as SIGCONT, returns none. A busy worker may never see a wait
   * that returns all, but epoll returns events in the order in which they became ready: what was ready before the
   * marker has been handled when the marker comes.
   */
  turn(maxWaitMs: number): void {
    const beforeMs = this.clock.now();
    const waitMs = this.#waitMs(beforeMs, maxWaitMs);
    this.#status[STATUS.isWaiting] = waitMs > 0 ? 1 : 0;
    const count = this.#epoll.wait(waitMs);
    this.#status[STATUS.isWaiting] = 0;
    this.#countTurn();
    this.#onWaited(this.nowMs, this.nowMs - beforeMs);
    if (count !== -EINTR) must('epoll_wait', count);
    this.#turn++;

    const postponed = this.#nextTurn;
    this.#nextTurn = this.#spare;
    for (let i = 0; i < count; i++) {
      const fd = this.#epoll.descriptor(i);
      const handler = this.#handlers[fd];
      if (handler === undefined || this.#generations[fd] !== this.#epoll.tag(i)) continue;
      if (this.#renewedIn[fd] === this.#turn) continue;
      // Read for each event: a deadline that starts after a standstill within the turn must get its whole time, too.
      if (i > 0) this.nowMs = this.clock.now();
      try {
        handler.onEvents(this.#epoll.events(i), fd);
      } catch (err) {
        this.onFault(err, handler);
      }
    }
    this.#runAll(postponed);
    this.#spare = postponed;
    if (count !== -EINTR) this.#expire(beforeMs, count < EVENTS_PER_TURN);
    this.chores.expire(beforeMs);
    this.#runAll(this.#endOfTurn);
  }

  /** In place of {@link turn}: handles nothing and keeps all events. Returns whether `fd` became readable. */
  standStill(fd: number, maxWaitMs: number): boolean {
    const status = waitReadable(fd, maxWaitMs);
    this.#countTurn();
    return status > 0;
  }

  shutdown(): void {
    for (const handler of this.#handlers) handler?.onShutdown();
    this.close(this.#epoll.fd);
  }

  #expire(beforeMs: number, isAll: boolean): void {
    if (isAll) this.deadlines.expire(beforeMs);
    else if (this.#isMarkerThere) this.deadlines.expire(this.#markedMs);
    if (isAll || this.#isMarkerThere) this.#markedMs = Number.POSITIVE_INFINITY;
    this.#isMarkerThere = false;
    if (isAll || this.#markedMs <= beforeMs || this.deadlines.firstDueMs() > beforeMs) return;
    this.#markedMs = beforeMs;
    signal(this.#marker);
  }

  #countTurn(): void {
    this.#status[STATUS.turns] = ((this.#status[STATUS.turns] as number) + 1) | 0;
    this.nowMs = this.clock.now();
  }

  #waitMs(beforeMs: number, maxWaitMs: number): number {
    if (this.#nextTurn.length > 0) return 0;
    const dueMs = Math.min(this.deadlines.firstDueMs(), this.chores.firstDueMs());
    return Math.max(0, Math.ceil(Math.min(dueMs - beforeMs, maxWaitMs)));
  }

  #runAll(tasks: Task[]): void {
    for (const task of tasks) {
      this.nowMs = this.clock.now();
      try {
        task.run();
      } catch (err) {
        this.onFault(err, task);
      }
    }
    tasks.length = 0;
  }
}
