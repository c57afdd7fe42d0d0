import { COUNTERS, type Counters } from '../../model/data-plane.ts';
import type { Rates } from '../../model/view.ts';

export function noCounters(): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Counters;
}

export function addTo(sum: Counters, counters: Readonly<Counters>): void {
  for (const name of COUNTERS) sum[name] += counters[name];
}

export const NO_RATES: Rates = { connections: 0, receivedBytes: 0, sentBytes: 0, failures: 0 };

export function addRates(a: Rates, b: Rates): Rates {
  return {
    connections: a.connections + b.connections,
    receivedBytes: a.receivedBytes + b.receivedBytes,
    sentBytes: a.sentBytes + b.sentBytes,
    failures: a.failures + b.failures,
  };
}
