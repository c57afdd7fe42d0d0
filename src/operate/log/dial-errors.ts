import type { DataPlane, DataPlaneObserver, ListenerStats } from '../../model/data-plane.ts';
import type { ServicePortName } from '../../model/service.ts';
import { listenerId } from '../../model/service-port.ts';
import type { Clock } from '../../util/clock.ts';
import { withoutAddress } from '../../util/text.ts';

const MAX_ERRORS = 1_000;
const MAX_AGE_MS = 10 * 60_000;

/** Reading a Service with a thousand endpoints takes half a millisecond, and each of them may fail. */
const READ_MS = 100;
const MAX_READINGS = 100;

export interface DialError {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly err: string;
  /** The endpoint has answered no dial since. */
  readonly isLatest: boolean;
}

interface Failed extends Omit<DialError, 'isLatest'> {
  /** How much the endpoint had answered until then; `undefined` where the fault is not the endpoint's. */
  readonly answered: number | undefined;
}

interface Reading {
  readonly atMs: number;
  /** By endpoint. */
  readonly answered: ReadonlyMap<string, number>;
}

/**
 * Remembers the last failed dial of each endpoint: for ten minutes, of a thousand endpoints. Whether an endpoint has
 * answered since is read from its counters, because engines tell of failures only. An endpoint that fails within
 * {@link READ_MS} after an answer may count as one that has answered since.
 */
export class DialErrors {
  readonly #clock: Clock;
  /** By Service port and endpoint, the least recent first. */
  readonly #errors = new Map<string, Failed>();
  /** By Service port and family, the oldest first. */
  readonly #readings = new Map<string, Reading>();
  #dataPlane: Pick<DataPlane, 'statsOf'> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Until then no error is known to be the latest. */
  readFrom(dataPlane: Pick<DataPlane, 'statsOf'>): void {
    this.#dataPlane = dataPlane;
  }

  failed({ name, backend, reason, err }: Parameters<DataPlaneObserver['dialFailed']>[0]): void {
    const key = `${name} ${backend}`;
    const answered = reason === 'other' ? undefined : this.#answered(name, backend);
    this.#errors.delete(key);
    this.#errors.set(key, { at: this.#clock.wallNow(), err: withoutAddress(err, backend), answered });
    shrink(this.#errors, MAX_ERRORS);
  }

  /** `backend` as `endpointName` prints it. */
  last(name: ServicePortName, backend: string): DialError | undefined {
    const error = this.#errors.get(`${name} ${backend}`);
    if (error === undefined || this.#clock.wallNow() - error.at >= MAX_AGE_MS) return undefined;
    const { at, err, answered } = error;
    return { at, err, isLatest: answered !== undefined && answered === this.#answered(name, backend) };
  }

  #answered(name: ServicePortName, backend: string): number | undefined {
    const family = backend.startsWith('[') ? 'IPv6' : 'IPv4';
    const key = `${name} ${family}`;
    const nowMs = this.#clock.now();
    const known = this.#readings.get(key);
    if (known !== undefined && nowMs - known.atMs < READ_MS) return known.answered.get(backend);
    // An event names the Service port, and not which of its listeners it was.
    const sets = (['own', 'local'] as const).flatMap(
      (set) => this.#dataPlane?.statsOf(listenerId(name, family, set)) ?? [],
    );
    const answered = sumOf(sets);
    this.#readings.delete(key);
    this.#readings.set(key, { atMs: nowMs, answered });
    shrink(this.#readings, MAX_READINGS);
    return answered.get(backend);
  }
}

/** TCP connections that were answered, or bytes of UDP answers. */
function sumOf(sets: readonly ListenerStats[]): ReadonlyMap<string, number> {
  const sum = new Map<string, number>();
  for (const { protocol, endpoints = [] } of sets) {
    for (const { endpoint, counters } of endpoints) {
      const { name } = endpoint;
      sum.set(name, (sum.get(name) ?? 0) + (protocol === 'TCP' ? counters.connects : counters.sentBytes));
    }
  }
  return sum;
}

function shrink(map: Map<string, unknown>, max: number): void {
  for (const key of map.keys()) {
    if (map.size <= max) return;
    map.delete(key);
  }
}
