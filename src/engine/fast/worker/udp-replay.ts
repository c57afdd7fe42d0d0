import type { Member } from '../../../services/member.ts';
import type { Pick } from '../../../services/picker.ts';
import type { DatagramInbox, ReplyPath } from '../../../sys/datagram-inbox.ts';
import { MAX_ASKED, REFUSAL_MS, Unanswered } from '../../unanswered.ts';
import { Deadline } from './deadlines.ts';
import type { Port } from './port.ts';
import type { UdpFlow } from './udp-flow.ts';

/** Whoever begins flows. */
export interface Asking {
  readonly port: Port;
  /** A flow to the next endpoint of the replay's pick, if there is one. */
  ask(replay: UdpReplay): UdpFlow | undefined;
  /** The flow only passes on late answers from now on. */
  retire(flow: UdpFlow): void;
}

/**
 * What one client has asked and nobody has answered yet. If the endpoint refuses, or stays silent where the Service
 * wants that (`Backends.udpReplayMs`), the next endpoint is asked the same, in a flow of its own.
 */
export class UdpReplay extends Deadline {
  readonly client: string;
  readonly path: ReplyPath;
  /** The client has another flow by now. */
  hasRetired = false;
  readonly #asking: Asking;
  readonly #unanswered: Unanswered;
  #pick: Pick | undefined;
  /** Which the pick does not know of. */
  #askedBefore: Member | undefined;
  /** Whose endpoint is asked now. */
  #flow: UdpFlow | undefined;
  #asked = 0;

  constructor(setup: {
    readonly asking: Asking;
    readonly client: string;
    readonly path: ReplyPath;
  }) {
    super();
    this.client = setup.client;
    this.path = setup.path;
    this.#asking = setup.asking;
    this.#unanswered = new Unanswered(this.#port.worker.keptBytes, this.#port);
  }

  /** The next endpoint to ask, of a pick that is made when it is needed: most questions are answered. */
  next(): Member | undefined {
    const { worker, endpoints } = this.#port;
    this.#pick ??= endpoints.picker.pick(this.client, worker.loop.nowMs);
    const member = this.#pick.next();
    const isAsked = member !== undefined && member === this.#askedBefore;
    this.#askedBefore = undefined;
    return isAsked ? this.#pick.next() : member;
  }

  /** None when `flow` does not ask any more. */
  datagramsOf(flow: UdpFlow): readonly Uint8Array[] {
    return flow === this.#flow ? this.#unanswered.datagrams : [];
  }

  /** Asks for the first time. */
  begin(): UdpFlow | undefined {
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
  follow(flow: UdpFlow, datagrams: readonly Uint8Array[] = []): void {
    this.#flow = flow;
    this.#askedBefore = flow.target.member;
    this.#asked = 1;
    for (const datagram of datagrams) {
      if (this.#unanswered.hasRoom && this.#unanswered.tryReserve(datagram.length)) this.#unanswered.add(datagram);
    }
    this.#wait();
  }

  /** The flow has sent `count` datagrams from `first` on. */
  keep(inbox: DatagramInbox, first: number, count: number): void {
    for (let i = first; i < first + count && this.#unanswered.hasRoom; i++) {
      if (this.#unanswered.tryReserve(inbox.bytes(i))) this.#unanswered.add(inbox.copy(i));
      else this.#port.count('notKept');
    }
  }

  /** `count` answers came. Returns whether nothing is left to answer. */
  answered(count: number): boolean {
    // Where questions can be asked twice, each has an answer. Elsewhere any answer shows that the endpoint is there.
    if (this.#port.udpReplayMs !== undefined) this.#unanswered.answered(count);
    if (this.#port.udpReplayMs === undefined || this.#unanswered.datagrams.length === 0) this.#end();
    else this.#wait();
    return this.#unanswered.isOver;
  }

  /** The flow has ended. */
  ended(flow: UdpFlow): void {
    if (flow === this.#flow) this.#end();
  }

  /** The flow has ended, and its endpoint will not answer. */
  endedInVain(flow: UdpFlow): void {
    if (flow === this.#flow) this.#askNext(flow.hasRetired);
  }

  /** The endpoint is silent. */
  onDue(): void {
    const flow = this.#flow;
    if (flow === undefined || this.#port.udpReplayMs === undefined) {
      this.#end();
      return;
    }
    // Its answer may only be late.
    const { hasRetired } = flow;
    this.#asking.retire(flow);
    this.#askNext(hasRetired);
  }

  get #port(): Port {
    return this.#asking.port;
  }

  #askNext(hasRetired: boolean): void {
    if (this.#unanswered.isOver) return;
    this.hasRetired = hasRetired;
    const { datagrams } = this.#unanswered;
    const flow = datagrams.length > 0 ? this.#asking.ask(this) : undefined;
    this.#flow = flow;
    if (flow === undefined) {
      this.#end();
      return;
    }
    this.#wait();
    for (const datagram of datagrams) {
      flow.resend(datagram);
      // Refused at once: another flow has sent all of them by now, or none will.
      if (flow !== this.#flow) return;
    }
  }

  #wait(): void {
    const { loop } = this.#port.worker;
    loop.deadlines.after(this.#port.udpReplayMs ?? REFUSAL_MS).start(this, loop.nowMs);
  }

  #end(): void {
    if (this.#unanswered.isOver) return;
    this.cancelDeadline();
    this.#flow = undefined;
    this.#unanswered.end();
  }
}
