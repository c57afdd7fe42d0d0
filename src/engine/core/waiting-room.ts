import type { Address } from '../../model/address.ts';
import { type OpenConnection, type Refusal, waitTimeOf } from '../../model/data-plane.ts';
import type { Member } from '../../services/member.ts';
import { pastMs, wholeMsLeft } from '../../util/clock.ts';
import { Alarm, Deadline, Deadlines, type Task } from './deadlines.ts';
import type { Port, Thread } from './port.ts';

/** So many clients are served in one turn: to dial for them takes a few milliseconds. */
const SERVED_PER_TURN = 64;

/** How often one client asks endpoints that answer nobody: a restarted program changes nothing in the cluster. */
const PROBE_MS = 1000;

/**
 * How long a client whose tries were in vain leaves endpoints in peace that answer others, as where a NetworkPolicy
 * keeps it out. It doubles each time.
 */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 8000;

/** How often an answer may call those whose tries were in vain: there are thousands of answers a second. */
const RECALL_MS = 250;

/** Times are rounded up to this: all of one length are one list, and clients of a hand-over have any time left. */
const STEP_MS = 100;

/** The datagrams of a UDP client are of no use to it any more so long after its last one. */
const PATIENCE_MS = 5000;

/** Why a client has no endpoint. `unanswered`: all that could be tried have failed. */
export type Cause = 'none' | 'full' | 'unanswered';

/** Of a client that may not wait. */
export const REFUSAL: Readonly<Record<Cause, Refusal>> = {
  none: 'no-endpoints',
  full: 'wait-timeout',
  unanswered: 'exhausted',
};

/** For a successor. */
export interface WaitRecord {
  /**
   * When the rest was so, in milliseconds since 1970: clients wait on while they are handed over. Absent: an earlier
   * build has written it.
   */
  readonly at?: number;
  readonly waitedMs: number;
  readonly leftMs: number;
  /** Of a UDP client: until its last datagram is too old. */
  readonly freshMs?: number;
}

/** Who waits. */
export interface Guest {
  readonly address: Address;
  /** There is an endpoint for it now. It may be over, or wait again, when this returns. */
  serve(): void;
  /** It waits no longer. */
  refuse(why: Refusal): void;
  describe(): OpenConnection | undefined;
}

/** A client's place in the room, from when it comes until it has an endpoint or goes. */
export class Waiter {
  guest: Guest;
  /** It is in the room, or has been, here or in another process. */
  isKnown = false;
  /** When it came. Below 0 in a process that is younger. */
  sinceMs = 0;
  dueMs = Number.NEGATIVE_INFINITY;
  /** Of a UDP client: its last datagram is too old then. */
  staleMs = Number.POSITIVE_INFINITY;
  cause: Cause = 'none';
  /** Which of the two times it has had. */
  hadForEndpoints = false;
  hadWhileFull = false;
  isInside = false;
  /** When tries for it were last in vain; -1: never. */
  triedMs = -1;
  /** For so long from then on, no answer to another client calls it. */
  pauseMs = 0;
  /** Where it stands. `undefined`: it is dialled for, or has gone. */
  line: Line | undefined;
  earlier: Waiter | undefined;
  later: Waiter | undefined;
  readonly deadline = new Deadline(this);

  constructor(guest: Guest) {
    this.guest = guest;
  }

  /** It has waited in another process. */
  static again(guest: Guest, { at, waitedMs, leftMs, freshMs }: WaitRecord, thread: Thread): Waiter {
    const waiter = new Waiter(guest);
    const recordedMs = at === undefined ? thread.nowMs : pastMs(at, thread);
    waiter.isKnown = true;
    waiter.sinceMs = recordedMs - waitedMs;
    waiter.dueMs = recordedMs + leftMs;
    if (freshMs !== undefined) waiter.staleMs = recordedMs + freshMs;
    waiter.hadForEndpoints = true;
    waiter.hadWhileFull = true;
    return waiter;
  }

  record({ nowMs, clock }: Thread): WaitRecord {
    const { sinceMs, dueMs, staleMs } = this;
    return {
      at: clock.wallNow(),
      waitedMs: wholeMsLeft(nowMs - sinceMs),
      leftMs: wholeMsLeft(dueMs - nowMs),
      ...(Number.isFinite(staleMs) && { freshMs: wholeMsLeft(staleMs - nowMs) }),
    };
  }

  onDue(): void {
    this.guest.refuse('wait-timeout');
  }

  get isTried(): boolean {
    return this.triedMs >= 0;
  }

  /** Of UDP: a datagram has come. */
  heard(nowMs: number): void {
    this.staleMs = nowMs + PATIENCE_MS;
  }

  /** Until it waits no longer. */
  leftMs(nowMs: number): number {
    return Math.min(this.dueMs, this.staleMs) - nowMs;
  }
}

/** Waiters in the order in which they came, or, where they are appended, in which they were tried. */
class Line {
  first: Waiter | undefined;
  #last: Waiter | undefined;

  append(waiter: Waiter): void {
    this.#put(waiter, this.#last);
  }

  /** Most are the last to come, or were the first. */
  insert(waiter: Waiter): void {
    if (this.#last === undefined || this.#last.sinceMs <= waiter.sinceMs) {
      this.append(waiter);
      return;
    }
    let before: Waiter | undefined;
    for (let each = this.first; each !== undefined && each.sinceMs <= waiter.sinceMs; each = each.later) before = each;
    this.#put(waiter, before);
  }

  remove(waiter: Waiter): void {
    const { earlier, later } = waiter;
    if (earlier === undefined) this.first = later;
    else earlier.later = later;
    if (later === undefined) this.#last = earlier;
    else later.earlier = earlier;
    waiter.earlier = undefined;
    waiter.later = undefined;
    waiter.line = undefined;
  }

  get last(): Waiter | undefined {
    return this.#last;
  }

  *[Symbol.iterator](): Generator<Waiter, undefined> {
    for (let each = this.first; each !== undefined; each = each.later) yield each;
  }

  #put(waiter: Waiter, earlier: Waiter | undefined): void {
    const later = earlier === undefined ? this.first : earlier.later;
    waiter.line = this;
    waiter.earlier = earlier;
    waiter.later = later;
    if (earlier === undefined) this.first = waiter;
    else earlier.later = waiter;
    if (later === undefined) this.#last = waiter;
    else later.earlier = waiter;
  }
}

/**
 * The clients of one Service port that have no endpoint now (docs/adr/0040). They stand in lines: those that wait for
 * any endpoint, those whose affinity waits for a full one, and those whose tries were in vain. Something that may let
 * the first of a line go on *calls* the line. In the next turns the clients of called lines are served, first come,
 * first served, until one has no endpoint still.
 *
 * A client whose tries were in vain keeps nobody else waiting: the endpoints may refuse only it.
 */
export class WaitingRoom implements Task {
  readonly port: Port;
  readonly #anyone = new Line();
  readonly #byMember = new Map<Member, Line>();
  readonly #unanswered = new Line();
  /** Those of them that are called. */
  readonly #again = new Line();
  readonly #called = new Set<Line>();
  #isDue = false;
  #isHeld = false;
  #recalledMs = Number.NEGATIVE_INFINITY;
  readonly #times = new Deadlines();
  readonly #alarm: Alarm;
  /** When it rings. */
  #alarmMs = Number.POSITIVE_INFINITY;
  /** In a line, or dialled for. */
  #guests = 0;

  constructor(port: Port) {
    this.port = port;
    this.#alarm = new Alarm(port.thread.loop, this);
  }

  get isEmpty(): boolean {
    return this.#guests === 0;
  }

  /** Those in lines. */
  get guests(): readonly Guest[] {
    return this.#lines().flatMap((line) => Array.from(line, ({ guest }) => guest));
  }

  /** What a new client waits for behind others; `undefined`: nobody waits for what it would get. */
  causeBehind(address: Address): Cause | undefined {
    const affine = this.port.picker.affine(address, this.#nowMs);
    return (affine === undefined ? this.#anyone : this.#byMember.get(affine))?.last?.cause;
  }

  /**
   * The client waits, perhaps again. Returns why it does not, if so.
   *
   * A client that meets another cause has at least the time of that cause from then on, once. So whoever has waited for
   * an endpoint and finds it full is not refused at once; and nobody waits longer than both times.
   */
  enter(waiter: Waiter, cause: Cause): Refusal | undefined {
    const nowMs = this.#nowMs;
    const { waiting } = this.port;
    const isNew = !waiter.isKnown;
    if (isNew && waiting !== undefined && this.#guests >= waiting.max) return 'wait-full';
    this.#meet(waiter, cause);
    if (waiter.leftMs(nowMs) <= 0) return isNew ? REFUSAL[cause] : 'wait-timeout';
    if (isNew) {
      waiter.isKnown = true;
      waiter.sinceMs = nowMs;
    }
    const comesBack = !isNew && !waiter.isInside;
    if (!waiter.isInside) {
      waiter.isInside = true;
      this.#guests++;
      this.restart(waiter);
    }
    if (cause === 'unanswered') {
      waiter.triedMs = nowMs;
      waiter.pauseMs = Math.min(Math.max(waiter.pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
      this.#unanswered.append(waiter);
    } else {
      const line = this.#lineOf(waiter);
      line.insert(waiter);
      // There may be an endpoint for it where it comes to.
      if (comesBack) this.#call(line);
    }
    this.port.countWaiting(1);
    return undefined;
  }

  /** It has an endpoint, or goes. Returns how long it was there. */
  leave(waiter: Waiter): number {
    this.#takeOut(waiter);
    waiter.isInside = false;
    waiter.deadline.cancel();
    this.#guests--;
    const waitedMs = wholeMsLeft(this.#nowMs - waiter.sinceMs);
    this.port.count('waitMs', undefined, waitedMs);
    this.port.count(waitTimeOf(waitedMs));
    if (this.isEmpty) {
      this.#alarm.cancel();
      this.port.thread.admission.forget(this);
    }
    return waitedMs;
  }

  /** Its time has changed. */
  restart(waiter: Waiter): void {
    const nowMs = this.#nowMs;
    const delayMs = Math.max(1, Math.ceil(waiter.leftMs(nowMs) / STEP_MS)) * STEP_MS;
    this.#times.after(delayMs).start(waiter.deadline, nowMs);
    this.#ringAfter(delayMs);
  }

  /** The Service port has other endpoints or terms. */
  updated(): void {
    for (const waiter of [...this.#unanswered]) this.#move(waiter, this.#again);
    this.#callAll();
  }

  /** A full endpoint may have one connection more. */
  freed(member: Member): void {
    this.#call(this.#anyone);
    const line = this.#byMember.get(member);
    if (line !== undefined) this.#call(line);
  }

  /** An endpoint has answered somebody. */
  answered(): void {
    const nowMs = this.#nowMs;
    if (this.#unanswered.first === undefined || nowMs - this.#recalledMs < RECALL_MS) return;
    this.#recalledMs = nowMs;
    for (const waiter of [...this.#unanswered])
      if (waiter.triedMs + waiter.pauseMs <= nowMs) this.#move(waiter, this.#again);
    this.#call(this.#again);
  }

  /** No endpoint comes any more. */
  close(): void {
    for (const guest of this.guests) guest.refuse('no-endpoints');
  }

  /** Descriptors are free again. */
  goOn(): void {
    this.#isHeld = false;
    this.#callAll();
  }

  onDue(): void {
    this.#alarmMs = Number.POSITIVE_INFINITY;
    this.#times.expire(this.#nowMs);
    if (this.isEmpty) return;
    // The one that was tried longest ago.
    const { first } = this.#unanswered;
    if (first !== undefined) this.#move(first, this.#again);
    // Should a call ever be missing, it costs a second.
    this.#callAll();
    this.#ringAfter(Math.min(PROBE_MS, this.#times.firstDueMs() - this.#nowMs));
  }

  run(): void {
    this.#isDue = false;
    for (let left = SERVED_PER_TURN; left > 0; left--) {
      const line = this.#firstCalled();
      if (line === undefined) return;
      this.#callFirstOf(line);
    }
    this.#soon();
  }

  get #nowMs(): number {
    return this.port.thread.nowMs;
  }

  #lines(): readonly Line[] {
    return [this.#anyone, this.#again, this.#unanswered, ...this.#byMember.values()];
  }

  #meet(waiter: Waiter, cause: Cause): void {
    const { forEndpointsMs = 0, whileFullMs = 0 } = this.port.waiting ?? {};
    waiter.cause = cause;
    const isFull = cause === 'full';
    if (isFull ? waiter.hadWhileFull : waiter.hadForEndpoints) return;
    if (isFull) waiter.hadWhileFull = true;
    else waiter.hadForEndpoints = true;
    const ms = isFull ? whileFullMs : forEndpointsMs;
    const dueMs = this.#nowMs + ms;
    if (ms === 0 || dueMs <= waiter.dueMs) return;
    waiter.dueMs = dueMs;
    if (waiter.isInside) this.restart(waiter);
  }

  /** Of those who wait for the same. */
  #lineOf({ guest }: Waiter): Line {
    const affine = this.port.picker.affine(guest.address, this.#nowMs);
    if (affine === undefined) return this.#anyone;
    let line = this.#byMember.get(affine);
    if (line === undefined) {
      line = new Line();
      this.#byMember.set(affine, line);
    }
    return line;
  }

  #takeOut(waiter: Waiter): void {
    if (waiter.line === undefined) return;
    waiter.line.remove(waiter);
    this.port.countWaiting(-1);
  }

  #move(waiter: Waiter, to: Line): void {
    waiter.line?.remove(waiter);
    to.insert(waiter);
  }

  #call(line: Line): void {
    if (line.first === undefined) return;
    this.#called.add(line);
    this.#soon();
  }

  /** But those whose tries were in vain. */
  #callAll(): void {
    for (const [member, line] of this.#byMember) if (line.first === undefined) this.#byMember.delete(member);
    for (const line of this.#lines()) if (line !== this.#unanswered) this.#call(line);
  }

  #soon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    this.port.thread.loop.inNextTurn(this);
  }

  /** The called line whose first has waited longest. */
  #firstCalled(): Line | undefined {
    let found: Line | undefined;
    for (const line of this.#called) {
      const { first } = line;
      if (first === undefined) this.#called.delete(line);
      else if (found?.first === undefined || first.sinceMs < found.first.sinceMs) found = line;
    }
    return found;
  }

  #callFirstOf(line: Line): void {
    const waiter = line.first as Waiter;
    const { picker, thread, share, protocol } = this.port;
    if (picker.peek(waiter.guest.address, this.#nowMs) === undefined) {
      this.#meet(waiter, this.port.causeOf('no-endpoints'));
      const to = this.#lineOf(waiter);
      // Nor for those behind it.
      if (to === line) this.#called.delete(line);
      else this.#move(waiter, to);
    } else if (protocol === 'TCP' && !thread.admission.admitsWaiting(share)) {
      this.#called.clear();
      if (this.#isHeld) return;
      this.#isHeld = true;
      thread.admission.hold(this);
    } else {
      this.#takeOut(waiter);
      waiter.guest.serve();
    }
  }

  #ringAfter(delayMs: number): void {
    const atMs = this.#nowMs + Math.min(delayMs, PROBE_MS);
    if (atMs >= this.#alarmMs) return;
    this.#alarmMs = atMs;
    this.#alarm.start(Math.max(0, atMs - this.#nowMs));
  }
}
