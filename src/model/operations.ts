import type { Endpoint } from './endpoint.ts';

/** What operators may alter while the program runs. */
export interface Operations {
  /** klog's verbosity, until it is altered again or the program starts anew. */
  setVerbosity(verbosity: number): void;
  /**
   * No Service gives this endpoint new connections on this node; those that are established go on. Until
   * {@link undrain}, also across a hand-over to a successor; a new start forgets it. An endpoint that no Service has is
   * remembered. `false` when as many are drained as may be, so this one is not.
   */
  drain(endpoint: Endpoint): boolean;
  /** `false` when it was not drained. */
  undrain(endpoint: Endpoint): boolean;
}
