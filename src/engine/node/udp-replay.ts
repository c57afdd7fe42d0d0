import type { RemoteInfo } from 'node:dgram';
import type { Member } from '../../services/member.ts';
import type { Pick } from '../../services/picker.ts';
import type { Timer } from '../../util/clock.ts';
import { type KeptBytes, MAX_ASKED, REFUSAL_MS, Unanswered } from '../unanswered.ts';
import type { Port } from './port.ts';
import type { LocalSocket, UdpFlow } from './udp-flow.ts';

/** Whoever begins flows. */
export interface Asking {
  readonly port: Port;
  readonly kept: KeptBytes;
  /** A flow to the next endpoint of the replay's pick, if there is one. */
  ask(replay: UdpReplay): UdpFlow | undefined;
}

/** A client, and who begins its flows. */
export interface Asked {
  readonly asking: Asking;
  readonly local: LocalSocket;
  readonly remote: RemoteInfo;
}

/**
 * What one client has asked and nobody has answered yet. If the endpoint refuses, or stays silent where the Service
 * wants that (`Backends.udpReplayMs`), the next endpoint is asked the same, in a flow of its own.
 */
export class UdpReplay {
  readonly local: LocalSocket;
  readonly remote: RemoteInfo;
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
  #timer: Timer | undefined;

  constructor({ asking, local, remote }: Asked) {
    this.local = local;
    this.remote = remote;
    this.#asking = asking;
    this.#unanswered = new Unanswered(asking.kept, asking.port);
  }

  /** The next endpoint to ask, of a pick that is made when it is needed: most questions are answered. */
  next(): Member | undefined {
    const { picker, setup } = this.#asking.port;
    this.#pick ??= picker.pick(this.remote.address, setup.clock.now());
    const member = this.#pick.next();
    const isAsked = member !== undefined && member === this.#askedBefore;
    this.#askedBefore = undefined;
    return isAsked ? this.#pick.next() : member;
  }

  /** The flow asks already. */
  follow(flow: UdpFlow): void {
    this.#flow = flow;
    this.#askedBefore = flow.target.member;
    this.#asked = 1;
    this.#wait();
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

  keep(datagram: Buffer): void {
    if (!this.#unanswered.hasRoom) return;
    if (this.#unanswered.tryReserve(datagram.length)) this.#unanswered.add(datagram);
    else this.#asking.port.counters.notKept++;
  }

  /** An answer came. Returns whether nothing is left to answer. */
  answered(): boolean {
    const { udpReplayMs } = this.#asking.port;
    // Where questions can be asked twice, each has an answer. Elsewhere any answer shows that the endpoint is there.
    if (udpReplayMs !== undefined) this.#unanswered.answered(1);
    if (udpReplayMs === undefined || this.#unanswered.datagrams.length === 0) this.#end();
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
    for (const datagram of datagrams) flow.resend(datagram);
  }

  #wait(): void {
    const { port } = this.#asking;
    this.#timer?.cancel();
    this.#timer = port.setup.clock.after(port.udpReplayMs ?? REFUSAL_MS, () => this.#onSilence());
  }

  #onSilence(): void {
    const flow = this.#flow;
    if (flow === undefined || this.#asking.port.udpReplayMs === undefined) {
      this.#end();
      return;
    }
    // Its answer may only be late.
    const { hasRetired } = flow;
    flow.retire();
    this.#askNext(hasRetired);
  }

  #end(): void {
    if (this.#unanswered.isOver) return;
    this.#timer?.cancel();
    this.#flow = undefined;
    this.#unanswered.end();
  }
}
