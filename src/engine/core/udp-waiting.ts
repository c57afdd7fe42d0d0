import type { Address } from '../../model/address.ts';
import type { OpenConnection, Refusal } from '../../model/data-plane.ts';
import { wholeMsLeft } from '../../util/clock.ts';
import { Backlog } from './backlog.ts';
import type { Port } from './port.ts';
import type { FlowClient } from './udp-flows.ts';
import { type Guest, Waiter, type WaitRecord } from './waiting-room.ts';

/** Where clients of one Service port wait. */
interface Room<From> {
  readonly port: Port;
  /** There is an endpoint for it. */
  serve(client: WaitingClient<From & FlowClient>): void;
  refuseWaiting(client: WaitingClient<From & FlowClient>, why: Refusal): void;
}

/** A client of a UDP port that has no endpoint now. What it asks waits with it. */
export class WaitingClient<From extends FlowClient> implements Guest {
  readonly from: From;
  readonly hasRetired = false;
  readonly waiter: Waiter;
  readonly backlog: Backlog;
  readonly #room: Room<From>;

  /** `past`: if it has waited before, here or in another process. */
  constructor(room: Room<From>, from: From, past?: Waiter | WaitRecord, backlog = new Backlog(room.port)) {
    const { thread } = room.port;
    this.from = from;
    this.backlog = backlog;
    if (past instanceof Waiter) this.waiter = past;
    else this.waiter = past === undefined ? new Waiter(this) : Waiter.again(this, past, thread);
    this.waiter.guest = this;
    if (!Number.isFinite(this.waiter.staleMs)) this.waiter.heard(thread.nowMs);
    this.#room = room;
  }

  get address(): Address {
    return this.from.address;
  }

  /** `isNew`: the client has sent it just now. */
  keep(datagram: Uint8Array, isNew = true): void {
    const { backlog, waiter } = this;
    const { port } = this.#room;
    if (backlog.hasRoomFor(datagram.length)) backlog.add(datagram, port.thread.nowMs);
    if (backlog.size === 0) this.refuse('wait-full');
    else if (isNew) port.heard(waiter);
  }

  describe(): OpenConnection {
    const leftMs = this.waiter.leftMs(this.#room.port.thread.nowMs);
    return { client: this.from.endpoint, endpoint: undefined, state: 'waiting', expiresMs: wholeMsLeft(leftMs) };
  }

  serve(): void {
    this.#room.serve(this);
  }

  refuse(why: Refusal): void {
    this.#room.refuseWaiting(this, why);
  }
}
