import type { Address } from '../../model/address.ts';
import { type Ending, TryLog } from '../../model/connection-log.ts';
import type { DialFailure, Limit, Refusal } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { type FlowKeys, FlowTable, type Key } from './flow-table.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import { type Asking, Replay } from './udp-replay.ts';
import { WaitingClient } from './udp-waiting.ts';
import { type Cause, REFUSAL, type Waiter, type WaitRecord } from './waiting-room.ts';

/** A client of a UDP port, and the address of this node that it uses. */
export interface FlowClient extends FlowKeys {
  readonly address: Address;
  readonly endpoint: Endpoint;
}

/** A flow, as far as policy goes. An engine's own moves the datagrams. */
export interface Flow<From, Again> {
  readonly from: From;
  readonly target: Target;
  hasRetired: boolean;
  /** While nobody has answered. */
  replay: Again | undefined;
  resend(datagram: Uint8Array): void;
  /** The client asks anew: the flow may be silent for as long as at its beginning. */
  asksAgain(): void;
  cut(ending: Ending): void;
}

/**
 * The flows of one Service port: which endpoint they get, when a client gets none, and what becomes of them when an
 * endpoint fails or leaves. An engine extends it with sockets.
 */
export abstract class UdpFlows<From extends FlowClient, Each extends Flow<From, Replay<From, Each>>>
  implements Asking<From, Each>
{
  abstract readonly port: Port;
  readonly table = new FlowTable<Each>();
  /** Clients that have no flow. Most Service ports never have one. */
  #waiting: FlowTable<WaitingClient<From>> | undefined;

  /**
   * A flow to this endpoint, which is in the table and counts; or why there is none, after {@link notReached}.
   * `undefined`: it has ended already.
   */
  protected abstract reach(
    target: Target,
    replay: Replay<From, Each>,
    tries: TryLog | undefined,
  ): Each | DialFailure | undefined;
  /** Tells the client that nobody gets its datagram. */
  abstract refuse(from: From): void;
  /** Sends what has waited, in the client's next flow. */
  protected abstract bring(from: From, datagrams: readonly Uint8Array[], waiter: Waiter): void;

  /** A flow for this client, which has none; `undefined` when it gets none, or waits: see {@link waitingAt}. */
  begin(from: From, waiter?: Waiter): Each | undefined {
    if (!this.#hasRoom(from, undefined)) return undefined;
    const replay: Replay<From, Each> = new Replay(this, from, waiter);
    const cause = waiter === undefined ? this.port.causeBehind(from.address) : undefined;
    if (cause === undefined) return replay.begin();
    this.#await(replay, cause);
    return undefined;
  }

  /** The client, if it waits for an endpoint: its datagrams wait with it. */
  waitingAt(local: Key, client: Key): WaitingClient<From> | undefined {
    const waiting = this.#waiting;
    return waiting === undefined || waiting.size === 0 ? undefined : waiting.get(local, client);
  }

  /** It has waited in another process. */
  waitAgain(from: From, datagrams: readonly Uint8Array[], record: WaitRecord): void {
    const client = new WaitingClient(this, from, record);
    const refusal = this.#enter(client, this.port.causeOf('no-endpoints'));
    if (refusal === undefined) for (const datagram of datagrams) client.keep(datagram, false);
    else this.#turnAway(from, refusal);
  }

  get waiting(): Iterable<WaitingClient<From>> {
    return this.#waiting ?? [];
  }

  serve(client: WaitingClient<From>): void {
    this.#leaveRoom(client);
    const { backlog, from, waiter } = client;
    const { datagrams } = backlog;
    backlog.clear();
    this.bring(from, datagrams, waiter);
  }

  refuseWaiting(client: WaitingClient<From>, why: Refusal): void {
    this.#leaveRoom(client);
    client.backlog.clear();
    this.#turnAway(client.from, why);
  }

  ask(replay: Replay<From, Each>): Each | undefined {
    let tries: TryLog | undefined;
    for (;;) {
      const before = replay.takeTurn();
      const target = before === undefined ? undefined : replay.next();
      if (target === undefined) {
        this.#await(replay, this.port.causeOf(before === 0 ? 'no-endpoints' : 'exhausted'), tries);
        return undefined;
      }
      if (before !== 0) {
        // Not before it is known that there will be a flow: the one that makes room may still be answered.
        if (!this.#hasRoom(replay.from, tries)) return undefined;
        this.port.count('retries', target);
        tries ??= new TryLog();
        tries.retries++;
      }
      const flow = this.reach(target, replay, tries);
      if (typeof flow !== 'string') return flow;
      tries ??= new TryLog();
      tries.fail(target.name, flow);
      if (flow !== 'other') continue;
      this.port.refusedDatagram(replay.from.endpoint, 'refused-error', tries);
      return undefined;
    }
  }

  /** It gets no datagram of its client any more, and passes on late answers. */
  retire(flow: Each): void {
    this.table.retire(flow);
  }

  /** The Service port has other endpoints by now. */
  updated(): void {
    for (const flow of this.table) {
      if (!this.port.has(flow.target)) this.#leave(flow);
      else if (flow.target.position < 0) this.retire(flow);
    }
  }

  /** A flow has begun, or is continued. `isCounted`: here, and not at the home of the port. */
  add(flow: Each, isCounted: boolean): void {
    this.table.add(flow);
    if (isCounted) this.port.thread.shares.flows.take(1, this.port.share);
  }

  delete(flow: Each, isCounted: boolean): void {
    this.table.delete(flow);
    if (isCounted) this.port.thread.shares.flows.give(1, this.port.share);
  }

  /**
   * What keeps the client's next datagram, if it is kept. After an answer only where questions can be asked twice:
   * elsewhere, and in bulk, it would cost a copy of all.
   */
  replayOfNext(flow: Each): Replay<From, Each> | undefined {
    if (flow.replay === undefined && this.port.udpReplayMs !== undefined && this.port.isHome) {
      flow.replay = new Replay(this, flow.from);
      flow.replay.follow(flow);
      flow.asksAgain();
    }
    return flow.replay;
  }

  /** Another endpoint gets these if this one fails. Another process has sent them. */
  keepUnanswered(flow: Each, datagrams: readonly Uint8Array[]): void {
    flow.replay = new Replay(this, flow.from);
    flow.replay.follow(flow, datagrams);
  }

  /** An endpoint has refused, or cannot be reached from here. Returns the reason. */
  notReached(target: Target, { address }: From, reason: DialFailure, err: string): DialFailure {
    this.port.dialFailedFor(target, reason, err);
    // The client's next datagram must not be pinned to it.
    if (reason !== 'other') this.port.picker.forget(address, target);
    return reason;
  }

  /** The flow has failed and ended. `replay`: its own, until then. */
  failed(flow: Each, replay: Replay<From, Each> | undefined, reason: DialFailure, err: string): void {
    const { target, from, hasRetired } = flow;
    if (this.notReached(target, from, reason, err) === 'other') replay?.ended(flow);
    else if (replay?.endedInVain(flow) !== true && !hasRetired) this.refuse(from);
  }

  /** How long a flow may be silent. `longestMs`: as long as its endpoint sees the client's address. */
  silenceMs(hasReplied: boolean, longestMs = Number.POSITIVE_INFINITY): number {
    const { udpIdleTimeoutMs, thread } = this.port;
    const { udpFirstReplyTimeoutMs } = thread.options;
    return Math.min(longestMs, hasReplied ? udpIdleTimeoutMs : Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs));
  }

  /** The flow's endpoint has gone. Another one is asked, where the Service wants that of silent ones. */
  #leave(flow: Each): void {
    const { replay } = flow;
    const asksNext = this.port.udpReplayMs !== undefined;
    if (asksNext) flow.replay = undefined;
    flow.cut('proxy-drain');
    if (asksNext) replay?.endedInVain(flow);
  }

  /** Nobody serves this client now: it waits, or is refused. */
  #await(replay: Replay<From, Each>, cause: Cause, tries?: TryLog): void {
    const { from, hasRetired, mayBeAnswered, waiter } = replay;
    let refusal: Refusal | undefined = REFUSAL[cause];
    if (!hasRetired && (waiter !== undefined || this.port.waiting !== undefined)) {
      const client = new WaitingClient(this, from, waiter, replay.giveBacklog());
      refusal = this.#enter(client, cause);
      if (refusal === undefined) return;
      client.backlog.clear();
    }
    this.#refuse(from, refusal, tries);
    if (!mayBeAnswered) this.refuse(from);
  }

  /** Returns why it may not wait, if so. */
  #enter(client: WaitingClient<From>, cause: Cause): Refusal | undefined {
    const refusal = this.port.wait(client.waiter, cause);
    if (refusal !== undefined) return refusal;
    this.#waiting ??= new FlowTable<WaitingClient<From>>();
    this.#waiting.add(client);
    return undefined;
  }

  #refuse({ address, endpoint }: From, why: Refusal, tries?: TryLog): void {
    this.port.clientRefused(address, why);
    this.port.refusedDatagram(endpoint, `refused-${why}`, tries);
  }

  /** The client is told, too. */
  #turnAway(from: From, why: Refusal): void {
    this.#refuse(from, why);
    this.refuse(from);
  }

  #leaveRoom(client: WaitingClient<From>): void {
    this.#waiting?.delete(client);
    this.port.left(client.waiter);
  }

  /** Ends a retired flow for a new one, if that is necessary. */
  #hasRoom(from: From, tries: TryLog | undefined): boolean {
    let limit = this.#limit();
    const retired = this.table.firstRetired;
    if (limit !== undefined && retired !== undefined) {
      // The new flow may be of the same client.
      retired.cut('proxy-replaced');
      limit = this.#limit();
    }
    if (limit === undefined) return true;
    // No old flow ends: a flood of forged clients must not end the flows of real ones.
    this.port.limited(from.address, limit);
    this.port.refusedDatagram(from.endpoint, 'refused-limit', tries);
    return false;
  }

  /** The limit that keeps a new flow out, if any. */
  #limit(): Limit | undefined {
    const { share, thread } = this.port;
    const limit = thread.shares.flows.limitOf(share);
    if (limit !== undefined) return `flows-${limit}`;
    return thread.admission.admitsFlow(share) ? undefined : 'descriptors';
  }
}
