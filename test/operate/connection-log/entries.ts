import type { ConnectionEntry } from '../../../src/model/connection-log.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';

export function entry(changes: Partial<ConnectionEntry> = {}): ConnectionEntry {
  return {
    name: 'default/web:http',
    protocol: 'TCP',
    client: endpointAt('10.0.0.7', 40_312),
    backend: '10.244.1.7:8080',
    ending: 'client-end',
    endedAt: Date.UTC(2026, 10, 23, 1, 48, 2, 43),
    durationMs: 1_043.2518,
    receivedBytes: 517,
    sentBytes: 20_431,
    tries: { retries: 0, failed: [] },
    ...changes,
  };
}
