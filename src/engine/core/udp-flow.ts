import type { Ending } from '../../model/connection-log.ts';
import type { DialFailure, OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { wholeMsLeft } from '../../util/clock.ts';
import type { Port } from './port.ts';
import { type Home, Session } from './session.ts';
import type { Target } from './target.ts';
import type { Flow, FlowClient } from './udp-flows.ts';

/** What a flow needs of its `UdpFlows`. */
interface FlowsOf<Each, Again> {
  delete(flow: Each, isCounted: boolean): void;
  failed(flow: Each, replay: Again | undefined, reason: DialFailure, err: string): void;
}

interface Followed {
  answered(count: number): boolean;
  ended(flow: object): void;
}

export interface FlowSetup<From, Again> {
  readonly from: From;
  /** Which has begun it. */
  readonly replay?: Again | undefined;
  readonly home?: Home | undefined;
  readonly hasReplied?: boolean | undefined;
  readonly hasRetired?: boolean | undefined;
  readonly receivedBytes?: number | undefined;
  readonly sentBytes?: number | undefined;
}

/** The datagrams of one client address and port, with their own socket to one endpoint, so that replies find back. */
export abstract class UdpFlow<Place extends Port, From extends FlowClient, Again extends Followed>
  extends Session<Place>
  implements Flow<From, Again>
{
  readonly from: From;
  abstract override readonly target: Target;
  hasRetired: boolean;
  replay: Again | undefined;
  protected hasReplied: boolean;
  protected receivedBytes: number;
  protected sentBytes: number;
  /** Without a datagram, its entry in connection tracking may end then. Infinity where there is none. */
  protected keptUntilMs = Number.POSITIVE_INFINITY;

  constructor(port: Place, setup: FlowSetup<From, Again>) {
    super(port, setup.home);
    this.from = setup.from;
    this.replay = setup.replay;
    this.hasReplied = setup.hasReplied ?? false;
    this.hasRetired = setup.hasRetired ?? false;
    this.receivedBytes = setup.receivedBytes ?? 0;
    this.sentBytes = setup.sentBytes ?? 0;
  }

  protected abstract readonly flows: FlowsOf<this, Again>;
  /** Until its silence ends it. */
  protected abstract readonly leftMs: number;
  abstract resend(datagram: Uint8Array): void;
  /** Its time of silence begins anew, by {@link hasReplied}. */
  protected abstract restartSilence(): void;
  /** Its sockets are not used any more. `reason`: if it has failed. */
  protected abstract release(ending: Ending, reason: DialFailure | undefined): void;

  /** The endpoint would see another address by now: after a standstill, datagrams may come before the flow's end. */
  get isForgotten(): boolean {
    return this.keptUntilMs !== Number.POSITIVE_INFINITY && this.port.thread.nowMs >= this.keptUntilMs;
  }

  describe(): OpenConnection | undefined {
    if (this.isOver) return undefined;
    const { endpoint } = this.target;
    return { client: this.from.endpoint, endpoint, state: 'flow', expiresMs: wholeMsLeft(this.leftMs) };
  }

  cut(ending: Ending): void {
    this.#end(ending, undefined);
  }

  asksAgain(): void {
    this.hasReplied = false;
    this.restartSilence();
  }

  /** Its socket has failed. `err`: for people. */
  protected failed(reason: DialFailure, err: string): void {
    const { replay } = this;
    this.replay = undefined;
    if (!this.isOver) this.tries.fail(this.target.name, reason);
    this.#end('backend-error', reason);
    this.flows.failed(this, replay, reason, err);
  }

  /** So many answers have come, with so many bytes. */
  protected answered(count: number, bytes: number): void {
    this.sentBytes += bytes;
    this.port.count('sentBytes', this.target, bytes);
    if (!this.hasReplied) {
      this.hasReplied = true;
      this.home?.answered();
      this.port.answered(this.target);
    }
    if (this.replay?.answered(count)) this.replay = undefined;
  }

  protected client(): Endpoint {
    return this.from.endpoint;
  }

  protected bytes() {
    return { receivedBytes: this.receivedBytes, sentBytes: this.sentBytes };
  }

  #end(ending: Ending, reason: DialFailure | undefined): void {
    if (!this.finish(ending)) return;
    this.replay?.ended(this);
    this.flows.delete(this, this.countsHere);
    this.release(ending, reason);
  }
}
