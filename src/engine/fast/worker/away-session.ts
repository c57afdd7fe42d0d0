import type { Over, PassedOn } from './link.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';

/**
 * What its home knows of a connection or flow that another worker carries. It counts here until it is over there, for
 * its endpoint, too, even while that is dialled.
 */
export abstract class AwaySession implements PassedOn {
  readonly port: Port;
  /** Taken until then. */
  readonly target: Target;

  constructor(port: Port, target: Target) {
    this.port = port;
    this.target = target;
  }

  onAnswered(): void {
    this.port.answered(this.target);
  }

  abstract onOver(over: Over): void;

  protected uncount(): void {
    this.port.countActive(-1, this.target);
    this.target.released();
    this.port.worker.admission.freed();
  }
}

/** A TCP connection. */
export class AwayConnection extends AwaySession {
  /** Takes the client back if the endpoint fails; `undefined` once it has answered. */
  #takeBack: ((failed: Failed) => void) | undefined;

  /** `takeBack`: unless the endpoint has answered before. */
  constructor(port: Port, target: Target, takeBack?: (failed: Failed) => void) {
    super(port, target);
    this.#takeBack = takeBack;
  }

  override onAnswered(): void {
    super.onAnswered();
    this.#takeBack = undefined;
  }

  onOver(over: Over): void {
    this.uncount();
    if (over.kind !== 'failed') return;
    this.port.failedElsewhere(this.target, over.reason);
    this.#takeBack?.(over);
  }
}

/** A dial that has failed. */
type Failed = Extract<Over, { readonly kind: 'failed' }>;
