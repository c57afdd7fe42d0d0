import { unmapped } from '../../model/address.ts';
import type { PortContext } from './port-context.ts';

/** Counts and tells that a client got no endpoint. */
export function turnAway(port: PortContext, client: string, reason: 'no-endpoints' | 'exhausted'): void {
  port.counters[reason === 'exhausted' ? 'exhausted' : 'noEndpoints']++;
  port.observer.turnedAway({ name: port.name, client: unmapped(client), reason });
}
