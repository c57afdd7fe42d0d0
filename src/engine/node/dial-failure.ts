import type { Counter, DialFailure } from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { errnoOf } from '../listen-error.ts';
import type { PortContext } from './port-context.ts';

const COUNTER = {
  refused: 'failedRefused',
  timeout: 'failedTimeout',
  unreachable: 'failedUnreachable',
  other: 'failedOther',
} as const satisfies Record<DialFailure, Counter>;

export function dialFailureOf(err: Error): DialFailure {
  switch (errnoOf(err)) {
    case 'ECONNREFUSED':
      return 'refused';
    case 'ETIMEDOUT':
      return 'timeout';
    case 'EHOSTUNREACH':
    case 'EHOSTDOWN':
    case 'ENETUNREACH':
    case 'ENETDOWN':
      return 'unreachable';
    default:
      return 'other';
  }
}

/** As refused as where the kernel gave the connection another port (Go's `net` package does the same). */
export function connectedToItself(endpoint: Endpoint): Error {
  const message = `connect ECONNREFUSED ${endpointName(endpoint)}: nobody listens there, the connection was to itself`;
  return Object.assign(new Error(message), { code: 'ECONNREFUSED' });
}

/** Counts and tells that an endpoint did not answer. */
export function reportDialFailure(port: PortContext, endpoint: Endpoint, reason: DialFailure, err: Error): void {
  port.counters[COUNTER[reason]]++;
  port.endpoints.of(endpoint)[COUNTER[reason]]++;
  port.observer.dialFailed({ name: port.name, backend: endpointName(endpoint), reason, err: err.message });
}
