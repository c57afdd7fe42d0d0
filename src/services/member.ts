import type { DialFailure } from '../model/data-plane.ts';
import type { NamedEndpoint } from '../model/endpoint.ts';

/** A failed dial. */
export interface Failure {
  readonly reason: DialFailure;
  readonly atMs: number;
}

/**
 * One endpoint of one listener, with everything that decides whether it gets the next connection (docs/adr/0024). The
 * engines report what happens to it; the picker and its scheduler only read. It lives while the endpoint is in the set
 * or draining; connections may hold it longer. Times are of the engine's clock.
 */
export class Member {
  /**
   * Another object each time that the endpoint comes into the set. So what was remembered of one that left never
   * applies to its return.
   */
  endpoint: NamedEndpoint;
  /** Where it is in {@link Pool.members}; -1 while it is not in the set. */
  position = -1;
  /** 1…65535. */
  weight = 1;
  /** When it came into the set. -Infinity: it was there when this program or the Service port began. */
  sinceMs = Number.NEGATIVE_INFINITY;
  /** Connections and flows, dials that are under way included. */
  open = 0;
  /** The last time that it answered a dial or a flow. */
  answeredMs = Number.NEGATIVE_INFINITY;
  /** Failed dials since then. */
  failures = 0;
  /** Of the current row of failures. */
  lastFailure: Failure | undefined;
  /** When it was first seen, in the current row of failures, that another endpoint of the set answers meanwhile. */
  aloneSinceMs = Number.POSITIVE_INFINITY;
  /** Until then it gets connections only when no other endpoint does; -Infinity while it is not ejected. */
  ejectedUntilMs = Number.NEGATIVE_INFINITY;
  /** See `WeightedEndpoint`, as it was said last. */
  isDoubtful = false;
  /** Ejections since it was readmitted last. */
  ejectionsInRow = 0;

  /** Set by its pool: {@link open} changed while it is in the set. */
  onLoad: ((member: Member) => void) | undefined;

  constructor(endpoint: NamedEndpoint) {
    this.endpoint = endpoint;
  }

  get name(): string {
    return this.endpoint.name;
  }

  /** A dial or a flow begins. Every one ends with one call of {@link released}. */
  taken(): void {
    this.open++;
    if (this.position >= 0) this.onLoad?.(this);
  }

  released(): void {
    this.open--;
    if (this.position >= 0) this.onLoad?.(this);
  }

  answered(nowMs: number): void {
    this.answeredMs = nowMs;
    this.failures = 0;
    this.lastFailure = undefined;
    this.aloneSinceMs = Number.POSITIVE_INFINITY;
  }

  failed(reason: DialFailure, atMs: number): void {
    this.failures++;
    this.lastFailure = { reason, atMs };
  }
}
