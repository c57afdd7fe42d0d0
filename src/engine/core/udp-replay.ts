import type { Address } from '../../model/address.ts';
import type { Pick } from '../../services/picker.ts';
import { Backlog } from './backlog.ts';
import { Deadline } from './deadlines.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import type { Waiter } from './waiting-room.ts';

/**
 * How long datagrams are kept where silence does not send them again: an ICMP refusal takes one round trip, and no
 * longer than this for an address that nobody has (three requests for a neighbour, one second apart).
 */
const REFUSAL_MS = 3500;

/**
 * A refusal takes one round trip, and this is a long one within a cluster. A datagram is older than this when a later
 * one is sent, and the kernel reports no refusal: then it has arrived, or is lost in silence.
 */
const ROUND_TRIP_MS = 100;

/** Endpoints that are asked in turn. Each further one multiplies what one forged datagram costs. */
const MAX_ASKED = 8;

interface Client {
  readonly address: Address;
}

interface AskedFlow {
  readonly target: Target;
  readonly hasRetired: boolean;
  /** Sends what the client has sent before and another endpoint has not answered. */
  resend(datagram: Uint8Array): void;
}

/** Whoever begins flows of one Service port. */
export interface Asking<From extends Client, Flow extends AskedFlow> {
  readonly port: Port;
  /** A flow to the next endpoint of the replay's pick, if there is one. */
  ask(replay: Replay<From, Flow>): Flow | undefined;
  /** The flow only passes on late answers from now on. */
  retire(flow: Flow): void;
}

/**
 * What one client has asked and nobody has answered yet. If the endpoint refuses, or stays silent where the Service
 * wants that, the next endpoint is asked the same, in a flow of its own.
 */
export class Replay<From extends Client, Flow extends AskedFlow> {
  readonly from: From;
  /** The client has another flow by now. */
  hasRetired = false;
  /** An endpoint has stayed silent: its answer may only be late. */
  mayBeAnswered = false;
  isOver = false;
  readonly #asking: Asking<From, Flow>;
  /** Of a client that has waited for an endpoint. */
  readonly waiter: Waiter | undefined;
  readonly #silence = new Deadline(this);
  #backlog: Backlog;
  #pick: Pick<Target> | undefined;
  /** Which the pick does not know of. */
  #askedBefore: Target | undefined;
  /** They are not asked again: a kernel limits how often it refuses, and silence leaves the client waiting. */
  #refusing: Set<Target> | undefined;
  /** Whose endpoint is asked now. */
  #flow: Flow | undefined;
  #asked = 0;

  constructor(asking: Asking<From, Flow>, from: From, waiter?: Waiter) {
    this.from = from;
    this.waiter = waiter;
    this.#asking = asking;
    this.#backlog = new Backlog(asking.port);
  }

  /** The next endpoint to ask, of a pick that is made when it is needed: most questions are answered. */
  next(): Target | undefined {
    const { port } = this.#asking;
    this.#pick ??= port.picker.pick(this.from.address, port.thread.nowMs);
    for (;;) {
      const member = this.#pick.next();
      const isAsked = member !== undefined && (member === this.#askedBefore || this.#refusing?.has(member));
      this.#askedBefore = undefined;
      if (!isAsked) return member;
    }
  }

  /** `undefined` when `flow` does not ask any more. */
  datagramsOf(flow: Flow): readonly Uint8Array[] | undefined {
    return flow === this.#flow ? this.#backlog.datagrams : undefined;
  }

  /** Asks for the first time. */
  begin(): Flow | undefined {
    this.#flow = this.#asking.ask(this);
    if (this.#flow === undefined) this.#end();
    else this.#wait();
    return this.#flow;
  }

  /** How many endpoints were asked before, or `undefined` when no other may be. */
  takeTurn(): number | undefined {
    return this.#asked < MAX_ASKED ? this.#asked++ : undefined;
  }

  /** The flow asks already; `datagrams`: what it has asked in another process. */
  follow(flow: Flow, datagrams: readonly Uint8Array[] = []): void {
    this.#flow = flow;
    this.#askedBefore = flow.target;
    this.#asked = 1;
    this.#addAll(datagrams);
    this.#wait();
  }

  /**
   * A datagram was sent at `sentMs`, and the kernel reported no refusal of earlier ones. So none of those that are a
   * round trip older is sent again: an endpoint may have got it. Where questions can be asked twice, all are kept.
   */
  wasSent(sentMs: number): void {
    if (this.#asking.port.udpReplayMs !== undefined) return;
    this.#backlog.forgetBefore(sentMs - ROUND_TRIP_MS);
  }

  /** `count` answers came. Returns whether nothing is left to answer. */
  answered(count: number): boolean {
    // Where questions can be asked twice, each has an answer. Elsewhere any answer shows that the endpoint is there.
    if (this.#asking.port.udpReplayMs === undefined) {
      this.#end();
      return true;
    }
    this.#backlog.forget(count);
    if (this.#backlog.size === 0) this.#end();
    else this.#wait();
    return this.isOver;
  }

  /** The flow has ended. */
  ended(flow: Flow): void {
    if (flow === this.#flow) this.#end();
  }

  /** The flow has ended, and its endpoint will not answer. False when there is nothing to ask another one. */
  endedInVain(flow: Flow): boolean {
    if (flow !== this.#flow) return false;
    this.#refusing ??= new Set();
    this.#refusing.add(flow.target);
    const isKept = this.#backlog.size > 0;
    this.#askNext(flow.hasRetired);
    return isKept;
  }

  /** The endpoint has been silent for too long. */
  onDue(): void {
    const flow = this.#flow;
    if (flow === undefined || this.#asking.port.udpReplayMs === undefined) {
      this.#end();
      return;
    }
    this.mayBeAnswered = true;
    const { hasRetired } = flow;
    this.#asking.retire(flow);
    this.#askNext(hasRetired);
  }

  /** See {@link Backlog.hasRoomFor}. */
  hasRoomFor(length: number): boolean {
    return !this.isOver && this.#backlog.hasRoomFor(length);
  }

  /** After {@link hasRoomFor}. */
  keep(datagram: Uint8Array, sentMs = this.#asking.port.thread.nowMs): void {
    this.#backlog.add(datagram, sentMs);
  }

  /** What its client has asked waits with it for an endpoint. */
  giveBacklog(): Backlog {
    const backlog = this.#backlog;
    this.#backlog = new Backlog(this.#asking.port);
    return backlog;
  }

  /** Another process has sent them. When is not known, so the next datagram makes them old. */
  #addAll(datagrams: readonly Uint8Array[]): void {
    for (const datagram of datagrams) {
      if (this.hasRoomFor(datagram.length)) this.keep(datagram, Number.NEGATIVE_INFINITY);
    }
  }

  #askNext(hasRetired: boolean): void {
    if (this.isOver) return;
    // It may have to end to make room, which must not end this.
    this.#flow = undefined;
    this.hasRetired = hasRetired;
    const backlog = this.#backlog;
    const flow = backlog.size > 0 ? this.#asking.ask(this) : undefined;
    this.#flow = flow;
    if (flow === undefined) {
      this.#end();
      return;
    }
    this.#wait();
    const { nowMs } = this.#asking.port.thread;
    for (const unanswered of [...backlog]) {
      unanswered.sentMs = nowMs;
      flow.resend(unanswered.datagram);
      // Refused at once: another flow has sent all of them by now, or none will.
      if (flow !== this.#flow) return;
    }
  }

  #wait(): void {
    const { port } = this.#asking;
    port.thread.loop.start(this.#silence, port.udpReplayMs ?? REFUSAL_MS);
  }

  #end(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#silence.cancel();
    this.#flow = undefined;
    this.#backlog.clear();
  }
}
