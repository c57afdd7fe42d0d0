import type { OpenConnection } from '../../../model/data-plane.ts';
import { close, waitReadable } from '../../../sys/descriptor.ts';
import { Epoll } from '../../../sys/epoll.ts';
import { resetOnClose } from '../../../sys/socket.ts';
import { EINTR, must } from '../../../sys/sys-error.ts';
import type { Clock } from '../../../util/clock.ts';
import { Deadlines } from './deadlines.ts';
import type { PortState } from './port-state.ts';
import { STATUS } from './protocol.ts';
import type { LiveRecord } from './records.ts';

/** Whoever watches a descriptor. */
export interface Handler {
  /** EPOLL… bits. */
  onEvents(events: number): void;
  /** The worker ends: reset or close what belongs to it. */
  onShutdown(): void;
  /** What another process needs to go on with it, if it is a connection or flow; only once if it has two descriptors. */
  describe?(): LiveRecord | undefined;
  /** What it is, if it is a connection or flow of this port; only once if it has two descriptors. */
  listing?(port: PortState): OpenConnection | undefined;
  /** These endpoints of the port have gone for good: end what is connected to one of them. */
  endpointsGone?(port: PortState, names: ReadonlySet<string>): void;
}

/** Work put off. */
export interface Task {
  run(): void;
}

/** Few enough that what one turn does to all of them is over in a few milliseconds. */
const EVENTS_PER_TURN = 128;

/**
 * How many turns in a row may be too short for all that is ready before deadlines are due nevertheless. A standstill
 * leaves behind what the kernel's queues hold, which is fewer; a flood never ends. Counted in turns and not in time, for
 * time passes without any work while the process is stopped.
 */
const MAX_TURNS_BEHIND = 200;

export interface EventLoopSetup {
  readonly clock: Clock;
  /** Marks a descriptor in `owners` as this worker's. Not 0. */
  readonly owner: number;
  readonly owners: Uint8Array;
  readonly status: Int32Array;
}

/**
 * Waits for events and hands them to whoever watches the descriptor. It also keeps the worker's descriptors, and is the
 * only place that closes them.
 *
 * A descriptor's number is given out again as soon as it is closed, also while older events of the same batch are still
 * to be handled. (And epoll goes on reporting a closed descriptor for as long as a child process that was forked in
 * between has a copy of it.) So each watch has a generation of its own, which epoll returns with every event: an event of
 * another generation than the one being watched belongs to the past and is dropped.
 */
export class EventLoop {
  readonly deadlines = new Deadlines();
  /** When the current event or task of this turn began: monotonic milliseconds. */
  nowMs: number;
  readonly #clock: Clock;
  readonly #owner: number;
  readonly #owners: Uint8Array;
  readonly #status: Int32Array;
  readonly #epoll = new Epoll(EVENTS_PER_TURN);
  /** By descriptor, as is the next. */
  readonly #handlers: (Handler | undefined)[] = [];
  readonly #generations: Int32Array;
  #lastGeneration = 0;
  #nextTurn: Task[] = [];
  readonly #endOfTurn: Task[] = [];
  #spare: Task[] = [];
  /** What was ready when this turn began is not all handled by its end. */
  #isBehind = false;
  #turnsBehind = 0;

  constructor({ clock, owner, owners, status }: EventLoopSetup) {
    this.#clock = clock;
    this.#owner = owner;
    this.#owners = owners;
    this.#status = status;
    this.#generations = new Int32Array(owners.length);
    this.nowMs = clock.now();
    this.own(must('epoll_create1', this.#epoll.fd));
  }

  /**
   * The descriptor was opened by this worker, or another process gives it up: {@link close} is due, or the main thread's
   * after this thread has died, though not while it is frozen.
   */
  own(fd: number): void {
    this.#owners[fd] = this.#owner;
  }

  close(fd: number): void {
    this.#handlers[fd] = undefined;
    // Before it is closed, for afterwards the number may be another thread's.
    this.#owners[fd] = 0;
    close(fd);
  }

  /** The peer sees a RST. */
  reset(fd: number): void {
    resetOnClose(fd);
    this.close(fd);
  }

  /** Numbers the current turn. */
  get turns(): number {
    return this.#status[STATUS.turns] as number;
  }

  /** Reads the clock: for what begins and ends within one event, whose `nowMs` stands still. */
  exactMs(): number {
    return this.#clock.now();
  }

  /** 0, or a negative errno. The descriptor may be a lent one. */
  watch(fd: number, events: number, handler: Handler): number {
    this.#lastGeneration = (this.#lastGeneration + 1) | 0;
    const status = this.#epoll.add(fd, events, this.#lastGeneration);
    if (status < 0) return status;
    this.#generations[fd] = this.#lastGeneration;
    this.#handlers[fd] = handler;
    return 0;
  }

  /** From now on another handler gets the events of a watched descriptor. */
  passTo(fd: number, handler: Handler): void {
    this.#handlers[fd] = handler;
  }

  rewatch(fd: number, events: number): void {
    must('epoll_ctl', this.#epoll.modify(fd, events, this.#generations[fd] as number));
  }

  /** For a lent descriptor: it stays open. */
  unwatch(fd: number): void {
    this.#handlers[fd] = undefined;
    this.#epoll.remove(fd);
  }

  /** Runs in the next turn, which does not wait then: what had events meanwhile comes first. */
  inNextTurn(task: Task): void {
    this.#nextTurn.push(task);
  }

  atEndOfTurn(task: Task): void {
    this.#endOfTurn.push(task);
  }

  /** A handler leaves some of what it was called for to its next event: deadlines wait until that is handled, too. */
  hasMore(): void {
    this.#isBehind = true;
  }

  /**
   * Waits for events, at most for `maxWaitMs`, and handles all that is due.
   *
   * After a standstill, of this process or of the machine, both are there: deadlines that have passed, and the events that
   * came in time to call them off. Events come first, so only those deadlines are due that had passed before a wait that
   * returned everything that was ready. A wait that a signal interrupts, such as SIGCONT, returns nothing of it.
   */
  turn(maxWaitMs: number): void {
    const beforeMs = this.#clock.now();
    const count = this.#epoll.wait(this.#waitMs(beforeMs, maxWaitMs));
    this.#countTurn();
    if (count !== -EINTR) must('epoll_wait', count);
    this.#isBehind = count === -EINTR || count === EVENTS_PER_TURN;

    const postponed = this.#nextTurn;
    this.#nextTurn = this.#spare;
    for (let i = 0; i < count; i++) {
      const fd = this.#epoll.descriptor(i);
      const handler = this.#handlers[fd];
      if (handler === undefined || this.#generations[fd] !== this.#epoll.tag(i)) continue;
      // Read again for each: one that begins after a standstill in the middle of a turn has its whole time, too.
      if (i > 0) this.nowMs = this.#clock.now();
      handler.onEvents(this.#epoll.events(i));
    }
    this.#runAll(postponed);
    this.#spare = postponed;
    this.#turnsBehind = this.#isBehind ? (this.#turnsBehind + 1) % MAX_TURNS_BEHIND : 0;
    if (this.#turnsBehind === 0) this.deadlines.expire(beforeMs);
    this.#runAll(this.#endOfTurn);
  }

  /** Of all that is being watched. One that has two descriptors is visited twice. */
  forEachHandler(visit: (handler: Handler) => void): void {
    for (const handler of this.#handlers) if (handler !== undefined) visit(handler);
  }

  /**
   * Of what is watched at the next `looks` descriptors from `from` on, until `visit` says that it has enough. Returns the
   * descriptor to go on from; `undefined` at the end.
   */
  visitHandlers(from: number, looks: number, visit: (handler: Handler) => boolean): number | undefined {
    const handlers = this.#handlers;
    const end = Math.min(from + looks, handlers.length);
    for (let fd = from; fd < end; fd++) {
      const handler = handlers[fd];
      if (handler !== undefined && !visit(handler)) return fd + 1;
    }
    return end < handlers.length ? end : undefined;
  }

  /**
   * In place of {@link turn}: everything stands still, deadlines too, and what has events keeps them. Says whether `fd` has
   * become readable within `maxWaitMs`.
   */
  standStill(fd: number, maxWaitMs: number): boolean {
    const status = waitReadable(fd, maxWaitMs);
    this.#countTurn();
    return status > 0;
  }

  shutdown(): void {
    for (const handler of this.#handlers) handler?.onShutdown();
    this.close(this.#epoll.fd);
  }

  #countTurn(): void {
    this.#status[STATUS.turns] = ((this.#status[STATUS.turns] as number) + 1) | 0;
    this.nowMs = this.#clock.now();
  }

  #waitMs(beforeMs: number, maxWaitMs: number): number {
    if (this.#nextTurn.length > 0) return 0;
    return Math.max(0, Math.ceil(Math.min(this.deadlines.firstDueMs() - beforeMs, maxWaitMs)));
  }

  #runAll(tasks: Task[]): void {
    for (const task of tasks) {
      this.nowMs = this.#clock.now();
      task.run();
    }
    tasks.length = 0;
  }
}
