import type { Member } from '../services/member.ts';
import type { Pick } from '../services/picker.ts';
import type { Resource, Share } from './core/shares.ts';

/** The objects around a datagram; without it, empty datagrams would cost nothing. */
const OVERHEAD_BYTES = 512;

/** Of one client. A resolver sends its questions for both families at once; few clients have more under way. */
const MAX_DATAGRAMS = 16;

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

interface ReplayingPort {
  readonly thread: { readonly shares: { readonly datagramBytes: Resource } };
  readonly share: Share;
  /** See `Backends.udpReplayMs`. */
  readonly udpReplayMs: number | undefined;
}

interface Kept {
  readonly datagram: Uint8Array;
  /** To the endpoint that is asked now. */
  sentMs: number;
}

interface AskedFlow {
  readonly target: Member;
  readonly hasRetired: boolean;
  resend(datagram: Uint8Array): void;
}

/**
 * What one client has asked and nobody has answered yet. If the endpoint refuses, or stays silent where the Service
 * wants that, the next endpoint is asked the same, in a flow of its own.
 */
export abstract class Replay<Flow extends AskedFlow> {
  /** The client has another flow by now. */
  hasRetired = false;
  /** An endpoint has stayed silent: its answer may only be late. */
  mayBeAnswered = false;
  readonly #held: Resource;
  readonly #port: ReplayingPort;
  /** In the order in which they came. Nobody may change their bytes. */
  #datagrams: Kept[] = [];
  #bytes = 0;
  #isOver = false;
  #pick: Pick<Flow['target']> | undefined;
  /** Which the pick does not know of. */
  #askedBefore: Flow['target'] | undefined;
  /** They are not asked again: a kernel limits how often it refuses, and silence leaves the client waiting. */
  #refusing: Set<Flow['target']> | undefined;
  /** Whose endpoint is asked now. */
  #flow: Flow | undefined;
  #asked = 0;

  constructor(port: ReplayingPort) {
    this.#held = port.thread.shares.datagramBytes;
    this.#port = port;
  }

  protected abstract get nowMs(): number;
  protected abstract pick(): Pick<Flow['target']>;
  /** A flow to the next endpoint, if there is one. */
  protected abstract ask(): Flow | undefined;
  /** The flow only passes on late answers from now on. */
  protected abstract retire(flow: Flow): void;
  /** Calls {@link onSilence} after this time, and no longer after an earlier one. */
  protected abstract wait(ms: number): void;
  protected abstract stopWaiting(): void;

  /** The next endpoint to ask, of a pick that is made when it is needed: most questions are answered. */
  next(): Flow['target'] | undefined {
    this.#pick ??= this.pick();
    for (;;) {
      const member = this.#pick.next();
      const isAsked = member !== undefined && (member === this.#askedBefore || this.#refusing?.has(member));
      this.#askedBefore = undefined;
      if (!isAsked) return member;
    }
  }

  /** `undefined` when `flow` does not ask any more. */
  datagramsOf(flow: Flow): readonly Uint8Array[] | undefined {
    return flow === this.#flow ? this.#datagrams.map(({ datagram }) => datagram) : undefined;
  }

  /** Asks for the first time. */
  begin(): Flow | undefined {
    this.#flow = this.ask();
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

  /** The flow goes on elsewhere, with these: next is {@link rejoin} or {@link goOn}. */
  leave(): readonly Uint8Array[] {
    const datagrams = this.#datagrams.map(({ datagram }) => datagram);
    this.stopWaiting();
    this.#flow = undefined;
    this.#held.give(this.#bytes, this.#port.share);
    this.#bytes = 0;
    this.#datagrams = [];
    return datagrams;
  }

  /** After {@link leave}: the flow has come back. */
  rejoin(flow: Flow, datagrams: readonly Uint8Array[]): void {
    this.#flow = flow;
    this.#addAll(datagrams);
    this.#wait();
  }

  /** After {@link leave}, or first: `target` has not answered these, so the next endpoint is asked. */
  goOn(target: Flow['target'], datagrams: readonly Uint8Array[]): void {
    if (this.#asked === 0) {
      this.#askedBefore = target;
      this.#asked = 1;
    }
    this.#addAll(datagrams);
    this.#askNext(false);
  }

  /**
   * A datagram was sent at `sentMs`, and the kernel reported no refusal of earlier ones. So none of those that are a
   * round trip older is sent again: an endpoint may have got it. Where questions can be asked twice, all are kept.
   */
  wasSent(sentMs: number): void {
    if (this.#port.udpReplayMs !== undefined) return;
    const first = this.#datagrams.findIndex((kept) => kept.sentMs >= sentMs - ROUND_TRIP_MS);
    this.#forget(first < 0 ? this.#datagrams.length : first);
  }

  /** `count` answers came. Returns whether nothing is left to answer. */
  answered(count: number): boolean {
    // Where questions can be asked twice, each has an answer. Elsewhere any answer shows that the endpoint is there.
    if (this.#port.udpReplayMs === undefined) {
      this.#end();
      return true;
    }
    this.#forget(count);
    if (this.#datagrams.length === 0) this.#end();
    else this.#wait();
    return this.#isOver;
  }

  /** The flow has ended. */
  ended(flow: Flow): void {
    if (flow === this.#flow) this.#end();
  }

  refusedBy(target: Flow['target']): void {
    this.#refusing ??= new Set();
    this.#refusing.add(target);
  }

  /** The flow has ended, and its endpoint will not answer. False when there is nothing to ask another one. */
  endedInVain(flow: Flow): boolean {
    if (flow !== this.#flow) return false;
    this.refusedBy(flow.target);
    const isKept = this.#datagrams.length > 0;
    this.#askNext(flow.hasRetired);
    return isKept;
  }

  /** For what {@link wait} began. */
  onSilence(): void {
    const flow = this.#flow;
    if (flow === undefined || this.#port.udpReplayMs === undefined) {
      this.#end();
      return;
    }
    this.mayBeAnswered = true;
    const { hasRetired } = flow;
    this.retire(flow);
    this.#askNext(hasRetired);
  }

  /** Whether the client's next datagram is wanted. */
  protected get hasRoom(): boolean {
    return !this.#isOver && this.#datagrams.length < MAX_DATAGRAMS;
  }

  /** Makes room for a datagram of this length, before it is copied. False at a limit. */
  protected tryReserve(length: number): boolean {
    const bytes = length + OVERHEAD_BYTES;
    if (!this.#held.tryTake(bytes, this.#port.share)) return false;
    this.#bytes += bytes;
    return true;
  }

  /** After {@link tryReserve}. */
  protected add(datagram: Uint8Array, sentMs = this.nowMs): void {
    this.#datagrams.push({ datagram, sentMs });
  }

  /** The first `count` are never sent again. */
  #forget(count: number): void {
    for (const { datagram } of this.#datagrams.splice(0, count)) {
      const bytes = datagram.length + OVERHEAD_BYTES;
      this.#bytes -= bytes;
      this.#held.give(bytes, this.#port.share);
    }
  }

  /** Another process or worker has sent them. When is not known, so the next datagram makes them old. */
  #addAll(datagrams: readonly Uint8Array[]): void {
    for (const datagram of datagrams) {
      if (this.hasRoom && this.tryReserve(datagram.length)) this.add(datagram, Number.NEGATIVE_INFINITY);
    }
  }

  #askNext(hasRetired: boolean): void {
    if (this.#isOver) return;
    // It may have to end to make room, which must not end this.
    this.#flow = undefined;
    this.hasRetired = hasRetired;
    const datagrams = this.#datagrams;
    const flow = datagrams.length > 0 ? this.ask() : undefined;
    this.#flow = flow;
    if (flow === undefined) {
      this.#end();
      return;
    }
    this.#wait();
    const { nowMs } = this;
    for (const kept of datagrams) {
      kept.sentMs = nowMs;
      flow.resend(kept.datagram);
      // Refused at once: another flow has sent all of them by now, or none will.
      if (flow !== this.#flow) return;
    }
  }

  #wait(): void {
    this.wait(this.#port.udpReplayMs ?? REFUSAL_MS);
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.stopWaiting();
    this.#flow = undefined;
    this.#held.give(this.#bytes, this.#port.share);
    this.#bytes = 0;
    this.#datagrams = [];
  }
}
