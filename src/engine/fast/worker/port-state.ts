import { COUNTERS, type Counter, type DialFailure } from '../../../model/data-plane.ts';
import { Picker, type PickerRecord } from '../../../services/picker.ts';
import {
  describeErrno,
  ECONNREFUSED,
  EHOSTDOWN,
  EHOSTUNREACH,
  ENETDOWN,
  ENETUNREACH,
  ETIMEDOUT,
} from '../../../sys/sys-error.ts';
import { EndpointTable, type Target } from './endpoint-table.ts';
import { COUNTER, type CountedBackends, type CounterBlocks, type PortEvent, type PortId } from './protocol.ts';
import { ReportBudget } from './report-budget.ts';
import { TcpDrain } from './tcp-drain.ts';
import type { WorkerContext } from './worker-context.ts';

/** What is made for the first client or change. */
interface Choice {
  readonly picker: Picker;
  readonly endpoints: EndpointTable;
  readonly drain: TcpDrain | undefined;
}

type EventOf<Kind extends PortEvent['kind']> = Omit<Extract<PortEvent, { kind: Kind }>, 'kind' | 'port'>;

const FAILURE_COUNTER = {
  refused: 'failedRefused',
  timeout: 'failedTimeout',
  unreachable: 'failedUnreachable',
  other: 'failedOther',
} as const satisfies Record<DialFailure, Counter>;

const FAILURES: ReadonlyMap<number, DialFailure> = new Map([
  [ECONNREFUSED, 'refused'],
  [ETIMEDOUT, 'timeout'],
  [EHOSTUNREACH, 'unreachable'],
  [EHOSTDOWN, 'unreachable'],
  [ENETUNREACH, 'unreachable'],
  [ENETDOWN, 'unreachable'],
]);

/** One Service port, whatever its protocol: its picker, its endpoints, its counters, and a voice. */
export class PortState {
  readonly id: PortId;
  readonly worker: WorkerContext;
  readonly #reports = new ReportBudget();
  /** Until there is a choice. */
  #backends: CountedBackends | undefined;
  readonly #blocks: CounterBlocks;
  readonly #drains: boolean;
  #choice: Choice | undefined;
  #counters: Float64Array | undefined;

  constructor(setup: {
    readonly id: PortId;
    readonly worker: WorkerContext;
    readonly backends: CountedBackends;
    readonly counters: CounterBlocks;
    /** Whether connections are ended after the endpoint drain timeout, where there is one. */
    readonly drains: boolean;
  }) {
    this.id = setup.id;
    this.worker = setup.worker;
    this.#backends = setup.backends;
    this.#blocks = setup.counters;
    this.#drains = setup.drains && setup.worker.options.endpointDrainTimeoutMs > 0;
  }

  get picker(): Picker {
    return this.#choose().picker;
  }

  get endpoints(): EndpointTable {
    return this.#choose().endpoints;
  }

  update(backends: CountedBackends): void {
    const { endpoints, drain } = this.#choose();
    drain?.update(backends);
    endpoints.update(backends);
  }

  /** What the picker knows, if there is one. */
  pickerRecord(): PickerRecord | undefined {
    return this.#choice?.picker.record(this.worker.loop.nowMs);
  }

  /** See {@link COUNTER}; shared with the main thread. */
  get counters(): Float64Array {
    this.#counters ??= new Float64Array(this.#blocks.memory, this.#blocks.offset, COUNTERS.length);
    return this.#counters;
  }

  count(counter: Counter, target?: Target): void {
    add(this.counters, COUNTER[counter], 1);
    if (target !== undefined) add(target.counters, COUNTER[counter], 1);
  }

  /** A connection was accepted, or a flow begun. */
  begin(): void {
    add(this.counters, COUNTER.connections, 1);
    add(this.counters, COUNTER.active, 1);
  }

  /** One that another process had accepted or begun, and counted. */
  resumed(target: Target | undefined): void {
    add(this.counters, COUNTER.active, 1);
    if (target !== undefined) add(target.counters, COUNTER.active, 1);
  }

  /** An endpoint answered a dial after `tookMs`. */
  answered(target: Target, tookMs: number): void {
    for (const counters of [this.counters, target.counters]) {
      add(counters, COUNTER.connects, 1);
      add(counters, COUNTER.connectMs, tookMs);
    }
    this.joined(target);
  }

  /** A connection or flow has its endpoint. */
  joined(target: Target): void {
    add(target.counters, COUNTER.connections, 1);
    add(target.counters, COUNTER.active, 1);
  }

  /** A connection goes to this endpoint from now on. */
  connectedTo(target: Target): void {
    this.#choice?.drain?.connected(target.name);
  }

  /** `target`: the endpoint that it had, if any. */
  end(target: Target | undefined): void {
    add(this.counters, COUNTER.active, -1);
    if (target !== undefined) add(target.counters, COUNTER.active, -1);
  }

  turnedAway(event: EventOf<'turnedAway'>): void {
    this.#tell({ kind: 'turnedAway', port: this.id, ...event });
    this.count(event.reason === 'exhausted' ? 'exhausted' : 'noEndpoints');
  }

  /** What failed, by errno. */
  dialFailed(target: Target, errno: number): DialFailure {
    const reason = FAILURES.get(errno) ?? 'other';
    this.#dialFailed(target, reason, describeErrno(errno));
    return reason;
  }

  dialTimedOut(target: Target, timeoutMs: number): void {
    this.#dialFailed(target, 'timeout', `no answer within ${timeoutMs} ms`);
  }

  limited(event: EventOf<'limited'>): void {
    this.#tell({ kind: 'limited', port: this.id, ...event });
    this.count('limited');
  }

  listenerFailed(err: string): void {
    this.#tell({ kind: 'listenerFailed', port: this.id, err });
  }

  /** Made for the first client or change: of ten thousand Services, most have neither on this node. */
  #choose(): Choice {
    if (this.#choice !== undefined) return this.#choice;
    const { random, options } = this.worker;
    const picker = new Picker({ random, affinityMaxClients: options.affinityMaxClients });
    const endpoints = new EndpointTable(picker, (name) =>
      this.listenerFailed(`endpoint ${name} is served but not counted: no update has brought it; please report this`),
    );
    const drain = this.#drains ? new TcpDrain(this) : undefined;
    if (this.#backends !== undefined) {
      endpoints.update(this.#backends);
      drain?.update(this.#backends);
    }
    this.#backends = undefined;
    this.#choice = { picker, endpoints, drain };
    return this.#choice;
  }

  #dialFailed(target: Target, reason: DialFailure, err: string): void {
    this.#tell({ kind: 'dialFailed', port: this.id, backend: target.name, reason, err });
    this.count(FAILURE_COUNTER[reason], target);
  }

  /** Before it is counted, so that nobody sees a count and has not been told. */
  #tell(event: PortEvent): void {
    if (this.#reports.take(this.worker.loop.nowMs)) this.worker.report(event);
  }
}

export function add(counters: Float64Array, counter: number, amount: number): void {
  counters[counter] = (counters[counter] as number) + amount;
}
