import type { WaitingTerms } from './data-plane.ts';
import type { ServicePortName } from './service.ts';
import type { ServicePort } from './service-port.ts';

/* How long clients wait for an endpoint (docs/adr/0040). */

/** The shortest and the longest that anybody may ask for. 0 is none. */
export const MIN_WAIT_MS = 100;
export const MAX_WAIT_MS = 600_000;

/** Clients wait for a Service port that has no endpoint. */
export interface PodsNeeded {
  readonly name: ServicePortName;
  readonly port: number;
  /** Of the Service. */
  readonly uid?: string;
}

const DEFAULT_MAX_WAITING = 1_024;
const DEFAULT_QUEUE_TIMEOUT_MS = 5_000;

/** `undefined` where no client ever waits. */
export function waitingTerms({
  waitMs,
  options = {},
}: Pick<ServicePort, 'waitMs' | 'options'>): WaitingTerms | undefined {
  const { maxConnections, queueTimeoutMs = DEFAULT_QUEUE_TIMEOUT_MS, maxWaiting = DEFAULT_MAX_WAITING } = options;
  const whileFullMs = maxConnections === undefined ? 0 : queueTimeoutMs;
  if (waitMs === undefined && whileFullMs === 0) return undefined;
  return { forEndpointsMs: waitMs ?? 0, whileFullMs, max: maxWaiting };
}
