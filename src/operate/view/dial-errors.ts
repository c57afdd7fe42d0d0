import type { DataPlaneObserver } from '../../model/data-plane.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { Clock } from '../../util/clock.ts';

export interface DialError {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly err: string;
}

const MAX_REMEMBERED = 1_000;
const REMEMBERED_MS = 10 * 60_000;

/** Remembers why the last dial to an endpoint failed, on the way of the data plane's events to another observer. */
export class DialErrors implements DataPlaneObserver {
  readonly #observer: DataPlaneObserver;
  readonly #clock: Clock;
  /** By Service port and endpoint, the longest unheard first. */
  readonly #errors = new Map<string, DialError>();

  constructor(observer: DataPlaneObserver, clock: Clock) {
    this.#observer = observer;
    this.#clock = clock;
  }

  /** `backend` as {@link endpointName} has it. */
  last(name: ServicePortName, backend: string): DialError | undefined {
    const error = this.#errors.get(`${name} ${backend}`);
    return error !== undefined && this.#clock.wallNow() - error.at < REMEMBERED_MS ? error : undefined;
  }

  turnedAway(event: Parameters<DataPlaneObserver['turnedAway']>[0]): void {
    this.#observer.turnedAway(event);
  }

  dialFailed(event: Parameters<DataPlaneObserver['dialFailed']>[0]): void {
    const key = `${event.name} ${event.backend}`;
    this.#errors.delete(key);
    this.#errors.set(key, { at: this.#clock.wallNow(), err: event.err });
    if (this.#errors.size > MAX_REMEMBERED) {
      const [oldest = key] = this.#errors.keys();
      this.#errors.delete(oldest);
    }
    this.#observer.dialFailed(event);
  }

  limited(event: Parameters<DataPlaneObserver['limited']>[0]): void {
    this.#observer.limited(event);
  }

  listenerFailed(event: Parameters<DataPlaneObserver['listenerFailed']>[0]): void {
    this.#observer.listenerFailed(event);
  }
}
