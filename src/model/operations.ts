import type { Endpoint } from './endpoint.ts';

/** What operators may change while the program runs. */
export interface Operations {
  /** klog's verbosity, until the program restarts. */
  setVerbosity(verbosity: number): void;
  /**
   * The endpoint gets no new connections on this node; established ones continue. Lasts until {@link undrain}, also
   * across a hand-over, but not a restart. The endpoint may be unknown. `false` when too many are drained.
   */
  drain(endpoint: Endpoint): boolean;
  /** `false` when it was not drained. */
  undrain(endpoint: Endpoint): boolean;
}
