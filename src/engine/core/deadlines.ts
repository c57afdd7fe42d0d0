/** A thread's event loop, whatever it is made of. */
export interface Loop {
  readonly nowMs: number;
  /** For what an event may cancel: all that came in time is handled first, after a standstill, too. */
  start(deadline: Deadline, delayMs: number): void;
  /** For what no event cancels. */
  startChore(deadline: Deadline, delayMs: number): void;
  atEndOfTurn(task: Task): void;
  /** After the events of the next turn, which does not wait for them. */
  inNextTurn(task: Task): void;
}

export interface Task {
  run(): void;
}

/** When its owner has something to do. It is a field: an owner may have several, and waiting allocates nothing. */
export class Deadline {
  dueMs = 0;
  list: DeadlineList | undefined;
  earlier: Deadline | undefined;
  later: Deadline | undefined;
  readonly #owner: { onDue(): void };

  constructor(owner: { onDue(): void }) {
    this.#owner = owner;
  }

  get isWaiting(): boolean {
    return this.list !== undefined;
  }

  /** It is due, and waits no longer. */
  expire(): void {
    this.#owner.onDue();
  }

  /** Does nothing when it does not wait. */
  cancel(): void {
    this.list?.remove(this);
  }
}

/**
 * All deadlines of one delay. The last to start is the last to be due, so the order of starting is the order of time:
 * starting, restarting and cancelling cost a few pointers each, however many wait.
 */
export class DeadlineList {
  readonly #delayMs: number;
  readonly #onEmpty: () => void;
  #first: Deadline | undefined;
  #last: Deadline | undefined;

  constructor(delayMs: number, onEmpty = (): void => {}) {
    this.#delayMs = delayMs;
    this.#onEmpty = onEmpty;
  }

  get firstDueMs(): number {
    return this.#first === undefined ? Number.POSITIVE_INFINITY : this.#first.dueMs;
  }

  /** Restarts the deadline if it waits already, here or in another list. */
  start(deadline: Deadline, nowMs: number): void {
    deadline.list?.remove(deadline);
    deadline.list = this;
    deadline.dueMs = nowMs + this.#delayMs;
    deadline.earlier = this.#last;
    if (this.#last === undefined) this.#first = deadline;
    else this.#last.later = deadline;
    this.#last = deadline;
  }

  remove(deadline: Deadline): void {
    const { earlier, later } = deadline;
    if (earlier === undefined) this.#first = later;
    else earlier.later = later;
    if (later === undefined) this.#last = earlier;
    else later.earlier = earlier;
    deadline.earlier = undefined;
    deadline.later = undefined;
    deadline.list = undefined;
    if (this.#first === undefined) this.#onEmpty();
  }

  /** A deadline that starts again during this call waits for the next call. */
  expire(nowMs: number): void {
    for (let left = this.#countDue(nowMs); left > 0; left--) {
      const first = this.#first;
      if (first === undefined || first.dueMs > nowMs) return;
      this.remove(first);
      first.expire();
    }
  }

  #countDue(nowMs: number): number {
    let count = 0;
    for (let each = this.#first; each !== undefined && each.dueMs <= nowMs; each = each.later) count++;
    return count;
  }
}

/** One list per delay. There are a handful of delays, at most 500 of `udp-replay`, and those of {@link rounded}. */
export class Deadlines {
  readonly #byDelay = new Map<number, DeadlineList>();
  /** The same, for each turn. */
  readonly #lists: DeadlineList[] = [];
  readonly #onEmpty: (() => void) | undefined;

  /** `onEmpty`: the last of one delay waits no longer. */
  constructor(onEmpty?: () => void) {
    this.#onEmpty = onEmpty;
  }

  after(delayMs: number): DeadlineList {
    let list = this.#byDelay.get(delayMs);
    if (list === undefined) {
      list = new DeadlineList(delayMs, this.#onEmpty);
      this.#byDelay.set(delayMs, list);
      this.#lists.push(list);
    }
    return list;
  }

  /** Infinite when nothing waits. */
  firstDueMs(): number {
    let dueMs = Number.POSITIVE_INFINITY;
    for (const list of this.#lists) if (list.firstDueMs < dueMs) dueMs = list.firstDueMs;
    return dueMs;
  }

  expire(nowMs: number): void {
    for (const list of this.#lists) if (list.firstDueMs <= nowMs) list.expire(nowMs);
  }
}

/** The longest first. */
const STEPS_MS = [60_000, 5_000, 1_000, 50] as const;
const LAST_STEP_MS = 50;

/**
 * A deadline after any time, at most {@link LAST_STEP_MS} late. Every tenant may choose times, and chance does: each of
 * them as a delay would be a list of its own in a {@link Deadlines}, so this one goes there in steps.
 */
export class Alarm {
  readonly #loop: Loop;
  readonly #owner: { onDue(): void };
  readonly #step = new Deadline(this);
  #dueMs = 0;

  constructor(loop: Loop, owner: { onDue(): void }) {
    this.#loop = loop;
    this.#owner = owner;
  }

  /** Begins anew if it waits already. */
  start(delayMs: number): void {
    this.#dueMs = this.#loop.nowMs + delayMs;
    this.#wait(delayMs);
  }

  cancel(): void {
    this.#step.cancel();
  }

  onDue(): void {
    const leftMs = this.#dueMs - this.#loop.nowMs;
    if (leftMs <= 0) this.#owner.onDue();
    else this.#wait(leftMs);
  }

  #wait(leftMs: number): void {
    this.#loop.start(this.#step, STEPS_MS.find((step) => step <= leftMs) ?? LAST_STEP_MS);
  }
}

/** A delay that tenants choose, rounded up to two digits: so there are few of them, 90 of each power of ten. */
export function rounded(delayMs: number): number {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(delayMs)) - 1);
  return Math.ceil(delayMs / unit) * unit;
}
