import type { DialFailure } from '../../../model/data-plane.ts';
import type { NamedEndpoint } from '../../../model/endpoint.ts';
import type { ServicePortName } from '../../../model/service.ts';
import type { ProxiedProtocol } from '../../../model/service-port.ts';
import { dialTimeoutMs, type PickerRecord } from '../../../services/picker.ts';
import { describeErrno, errnoName } from '../../../sys/sys-error.ts';
import { Port as CorePort, type PortEvent } from '../../core/port.ts';
import { Share } from '../../core/shares.ts';
import { dialFailureOf, FAILURE_TEXT } from '../../errors.ts';
import { Guess } from './guess.ts';
import type { Link } from './link.ts';
import { type CountedBackends, type CounterBlock, countersIn, type PortId } from './protocol.ts';
import { Target } from './target.ts';
import type { WorkerContext } from './worker-context.ts';

/** How soon to ask again for carriers: there may have been no descriptors for them. */
const ASK_AGAIN_MS = 10_000;

/** One Service port in one worker: its counters lie in memory that the main thread reads. */
export class Port extends CorePort<Target, CountedBackends> {
  readonly id: PortId;
  readonly worker: WorkerContext;
  /** Workers that may carry connections of this home. */
  carriers: readonly number[] = [];
  /** Clients have usually sent something by the time the endpoint answers. If not, reading at once is a wasted call. */
  readonly clientsHaveSent = new Guess();
  #askedForCarriersMs = Number.NEGATIVE_INFINITY;
  readonly #block: CounterBlock;
  readonly #taken: SharedArrayBuffer;
  #share: Share | undefined;
  #counters: Float64Array | undefined;

  constructor(setup: {
    readonly id: PortId;
    readonly name: ServicePortName;
    readonly protocol: ProxiedProtocol;
    readonly worker: WorkerContext;
    readonly backends: CountedBackends;
    readonly counters: CounterBlock;
    readonly taken: SharedArrayBuffer;
    /** Its endpoints are known no longer. */
    readonly isClosed?: boolean;
    readonly isHome?: boolean;
  }) {
    const { name, protocol, isHome = true, isClosed = false } = setup;
    super(setup.worker, setup.backends, { name, protocol, isHome, drains: !isClosed });
    this.id = setup.id;
    this.worker = setup.worker;
    this.#block = setup.counters;
    this.#taken = setup.taken;
  }

  get thread(): WorkerContext {
    return this.worker;
  }

  get counters(): Float64Array {
    this.#counters ??= countersIn(this.#block);
    return this.#counters;
  }

  get share(): Share {
    this.#share ??= new Share(this.#taken, this.worker.index);
    return this.#share;
  }

  /** The endpoint that another worker or process has picked. It may have left since, or not have come yet. */
  targetOf(endpoint: NamedEndpoint): Target {
    return this.picker.pool.find(endpoint.name) ?? new Target(endpoint);
  }

  /** Continues where another process was. */
  restorePicker(record: PickerRecord): void {
    this.picker.restore(record, this.worker.nowMs);
    this.showEjected();
  }

  /** `tookMs`: see {@link Picker.failed}. */
  dialFailed(target: Target, errno: number, tookMs?: number): DialFailure {
    return this.dialFailedFor(target, dialFailureOf(errnoName(errno)), describeErrno(errno), tookMs);
  }

  /** The dial did not even begin, for a reason that lies in this node. */
  dialPrevented(target: Target, err: string): DialFailure {
    return this.dialFailedFor(target, 'other', err);
  }

  dialTimedOut(target: Target, timeoutMs: number, tookMs: number): void {
    this.dialFailedFor(target, 'timeout', `no answer within ${timeoutMs} ms`, tookMs);
  }

  /** Another worker has dialled, and has counted and reported the failure. */
  failedElsewhere(target: Target, reason: DialFailure): void {
    // It dials the first endpoint of a client. The messages there and back may take as long again.
    this.judge(target, reason, FAILURE_TEXT[reason], reason === 'timeout' ? 2 * dialTimeoutMs(0) : undefined);
  }

  /** The same for a flow. */
  flowFailedElsewhere(target: Target, client: string, reason: DialFailure): void {
    this.failedElsewhere(target, reason);
    if (reason !== 'other') this.picker.forget(client, target);
  }

  /** Whether a connection may go to another worker. Asks for carriers if there are none yet. */
  canSpread(): boolean {
    if (!this.worker.spreading.wants || !this.isHome) return false;
    if (this.carriers.length === 0) this.#askForCarriers();
    return this.carriers.length > 0;
  }

  /** Who is to dial for a new client; `undefined`: this worker. */
  carrierForClient(): Link | undefined {
    const { options, peers, spreading } = this.worker;
    // Only the home may dial a second endpoint beside the first.
    if (options.dialHedgeMs > 0 || !this.canSpread()) return undefined;
    return peers.to(spreading.forClient(this.carriers));
  }

  /** Who is to carry an open connection; `undefined`: this worker. */
  carrierForConnection(): Link | undefined {
    const { peers, spreading } = this.worker;
    return this.canSpread() ? peers.to(spreading.forConnection(this.carriers)) : undefined;
  }

  /** The answer comes as a command, unless no other worker can carry for now. */
  #askForCarriers(): void {
    const { nowMs } = this.worker;
    if (nowMs - this.#askedForCarriersMs < ASK_AGAIN_MS) return;
    this.#askedForCarriersMs = nowMs;
    this.worker.report({ kind: 'busy', port: this.id });
  }

  protected createTarget(endpoint: NamedEndpoint, { counters }: CountedBackends): Target {
    const block = counters.get(endpoint.name);
    return new Target(endpoint, block && countersIn(block));
  }

  protected tell(event: PortEvent): void {
    this.worker.report({ ...event, port: this.id });
  }
}
