import type { Service } from '../../src/model/service.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { ServiceTracker } from '../../src/services/service-tracker.ts';
import { Controller, type ControllerOptions } from '../../src/sync/controller.ts';
import { Listeners } from '../../src/sync/listeners.ts';
import { PortAllocator } from '../../src/sync/port-allocator.ts';
import { FakeDataPlane } from '../fakes/fake-data-plane.ts';
import type { ManualClock } from '../fakes/manual-clock.ts';
import type { RecordingLog } from '../fakes/recording-log.ts';
import { service } from '../rules/fixtures.ts';

export function serviceEvent(fields: Partial<Service> = {}): SourceEvent {
  const value = service(fields);
  return { kind: 'Service', key: value.key, value };
}

export const NO_METRICS = {
  changesQueued: () => {},
  syncDone: () => {},
  restoreFailed: () => {},
  rulesInstalled: () => {},
};

/** A controller with real parts around it, but for the kernel and the data plane. It is not started. */
export function createController({
  clock,
  log,
  rules,
  portRange = { first: 40_000, last: 50_000 },
  minSyncPeriodMs = 1_000,
}: Pick<ControllerOptions, 'rules'> & {
  readonly clock: ManualClock;
  readonly log: RecordingLog;
  readonly portRange?: { readonly first: number; readonly last: number };
  readonly minSyncPeriodMs?: number;
}) {
  const dataPlane = new FakeDataPlane();
  const health = { pending: false };
  const tracker = new ServiceTracker('IPv4');
  const ports = new PortAllocator({ family: 'IPv4', range: portRange, clock, random: () => 0 });
  const controller = new Controller({
    ...{ clock, log, rules, tracker, ports, minSyncPeriodMs },
    metrics: NO_METRICS,
    health: {
      queuedUpdate: () => {
        health.pending = true;
      },
      updated: () => {
        health.pending = false;
      },
    },
    listeners: new Listeners({
      ...{ family: 'IPv4', dataPlane, clock, log, ports, bindAddress: '0.0.0.0' },
      clientAddresses: { clientAddress: 'preserve', masqueradeAll: false },
      scheduler: 'rr',
    }),
    flows: { note: () => {}, noteAll: () => {}, clear: async () => {} },
    syncPeriodMs: 30_000,
  });
  return { dataPlane, health, tracker, controller };
}
