import type { DataPlane } from '../model/data-plane.ts';
import { partsOf, type ServicePortName } from '../model/service.ts';
import type { CarriedPort, ServicePort } from '../model/service-port.ts';
import type { PodsNeeded } from '../model/waiting.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { Ration } from '../util/ration.ts';
import { messageOf } from '../util/text.ts';

export interface WakeCallsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly dataPlane: Pick<DataPlane, 'stats' | 'statsOf'>;
  /** The Service port in each address family that has it. */
  readonly carried: (name: ServicePortName) => readonly CarriedPort[];
  readonly uidOf: (name: ServicePortName) => string | undefined;
  /** Rejects when nobody heard it. */
  readonly call: (needed: PodsNeeded) => Promise<void>;
}

/** Something waits for the call of an idled Service, and drops one that a slow clock has dated before the idling. */
const IDLED_AGAIN_MS = 5_000;
/** After a call that nobody heard: a client may wait for half a minute only. */
const FAILED_AGAIN_MS = 5_000;
/** Of any other Service. Whoever wants to may hear it. */
const AGAIN_MS = 60_000;

const LOOK_MS = 1_000;

/** A flood at all Services of a namespace may not become one of calls. What is refused is tried at the next look. */
const PER_NAMESPACE = { burst: 10, intervalMs: 1_000 };

/** While the API server is slow. */
const MAX_UNDER_WAY = 16;

/** With counts of their own: whoever makes Services must not fill the metrics. */
const MAX_COUNTED = 1_000;

interface Call {
  /** `Clock.now()` of the last one. */
  lastMs: number;
  isUnderWay: boolean;
  /** Nobody heard the last one. */
  hasFailed: boolean;
}

/** How often there were calls for a Service port. `undefined`: for those beyond {@link MAX_COUNTED}. */
export type CallCounts = ReadonlyMap<ServicePortName | undefined, number>;

/**
 * Calls for pods of Service ports that have no endpoint while clients wait for one: at once when the first client
 * waits, and again until there is an endpoint or nobody waits any more.
 */
export class WakeCalls {
  readonly #options: WakeCallsOptions;
  readonly #ration: Ration<string>;
  readonly #fault: LastingFault;
  /** Of Service ports at which somebody waits, or whose last call may not be repeated yet. The next ones come first. */
  readonly #calls = new Map<ServicePortName, Call>();
  readonly #counts = new Map<ServicePortName | undefined, number>();
  #underWay = 0;
  #timer: Timer | undefined;
  #isStopped = true;

  constructor(options: WakeCallsOptions) {
    const { clock, log } = options;
    this.#options = options;
    this.#ration = new Ration({ clock, ...PER_NAMESPACE });
    this.#fault = new LastingFault({
      log,
      begun: 'Cannot call for pods of Services whose clients wait; retrying while they wait',
      over: 'Calls for pods reach the API server again',
    });
  }

  /** Finds clients who wait already: a predecessor may have had them. */
  start(): void {
    this.#isStopped = false;
    for (const { name, counters } of this.#options.dataPlane.stats()) if (counters.waiting > 0) this.clientWaits(name);
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** A client waits where nobody waited before. */
  clientWaits(name: ServicePortName): void {
    if (this.#isStopped) return;
    if (!this.#calls.has(name)) {
      this.#calls.set(name, { lastMs: Number.NEGATIVE_INFINITY, isUnderWay: false, hasFailed: false });
    }
    this.#look(name);
    this.#arm();
  }

  get counts(): CallCounts {
    return this.#counts;
  }

  #arm(): void {
    if (this.#calls.size === 0) return;
    this.#timer ??= this.#options.clock.after(LOOK_MS, () => {
      this.#timer = undefined;
      for (const name of this.#calls.keys()) this.#look(name);
      this.#arm();
    });
  }

  #look(name: ServicePortName): void {
    const { clock, carried, dataPlane } = this.#options;
    const call = this.#calls.get(name);
    if (call === undefined) return;
    const ports = carried(name);
    const isWaitedFor = (id: Parameters<DataPlane['statsOf']>[0]) => (dataPlane.statsOf(id)?.counters.waiting ?? 0) > 0;
    const asleep = ports.find(isAsleep);
    const isWaiting = ports.some(({ listeners }) => listeners.some(({ id }) => isWaitedFor(id)));
    // The next time that it has no endpoint, somebody shall hear of it at once.
    if (asleep === undefined) call.lastMs = Number.NEGATIVE_INFINITY;
    const isDue = clock.now() - call.lastMs >= (asleep === undefined ? 0 : againMs(asleep.servicePort, call));
    if (!isWaiting && isDue) this.#calls.delete(name);
    if (asleep !== undefined && isWaiting && isDue) this.#call(asleep.servicePort, call);
  }

  #call({ name, port }: ServicePort, call: Call): void {
    const { clock, uidOf } = this.#options;
    if (call.isUnderWay || this.#underWay >= MAX_UNDER_WAY) return;
    if (this.#ration.take(partsOf(name).namespace) !== 'allowed') return;
    call.lastMs = clock.now();
    call.isUnderWay = true;
    // Behind those who have not been called for, or a namespace with many would never get to the last of them.
    this.#calls.delete(name);
    this.#calls.set(name, call);
    this.#underWay++;
    const counted = this.#counts.has(name) || this.#counts.size < MAX_COUNTED ? name : undefined;
    this.#counts.set(counted, (this.#counts.get(counted) ?? 0) + 1);
    const uid = uidOf(name);
    void this.#send({ name, port, ...(uid !== undefined && { uid }) }).then((isHeard) => {
      call.isUnderWay = false;
      call.hasFailed = !isHeard;
      this.#underWay--;
    });
  }

  /** Whether somebody heard it. Never rejects. */
  async #send(needed: PodsNeeded): Promise<boolean> {
    try {
      await this.#options.call(needed);
      this.#fault.succeeded();
      return true;
    } catch (error) {
      this.#fault.failed(messageOf(error));
      return false;
    }
  }
}

/** Nobody can be served. One with endpoints on other nodes has its pods. */
function isAsleep({ servicePort: { endpoints, onlyElsewhere } }: CarriedPort): boolean {
  return endpoints.length === 0 && !onlyElsewhere;
}

function againMs({ options }: ServicePort, { hasFailed }: Call): number {
  if (hasFailed) return FAILED_AGAIN_MS;
  return options?.isIdled ? IDLED_AGAIN_MS : AGAIN_MS;
}
