import type { PortBook } from '../../src/capture/port-book.ts';
import type { Service } from '../../src/model/service.ts';
import type { SnapshotDelta } from '../../src/model/service-port.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { ServiceTracker } from '../../src/services/service-tracker.ts';
import { Controller, type ControllerOptions } from '../../src/sync/controller.ts';
import { Listeners } from '../../src/sync/listeners.ts';
import { FakeDataPlane } from '../fakes/fake-data-plane.ts';
import type { ManualClock } from '../fakes/manual-clock.ts';
import type { RecordingLog } from '../fakes/recording-log.ts';
import { NO_METRICS, portBook } from './capture.ts';
import { service } from './model.ts';

export function serviceEvent(fields: Partial<Service> = {}): SourceEvent {
  const value = service(fields);
  return { kind: 'Service', key: value.key, value };
}

/** A controller with real parts around it, but for the kernel and the data plane. It is not started. */
export function createController({
  clock,
  log,
  capture,
  portRange = { first: 40_000, last: 50_000 },
  minSyncPeriodMs = 1_000,
  ports = portBook(clock, { range: portRange }),
  onDelta,
  isListening,
}: Pick<ControllerOptions, 'capture'> & {
  readonly clock: ManualClock;
  readonly log: RecordingLog;
  readonly portRange?: { readonly first: number; readonly last: number };
  readonly minSyncPeriodMs?: number;
  /** That of `capture`. */
  readonly ports?: PortBook;
  readonly onDelta?: (delta: SnapshotDelta) => void;
  readonly isListening?: () => boolean;
}) {
  const dataPlane = new FakeDataPlane();
  const health = {
    isQueued: false,
    hasBegun: false,
    get pending(): boolean {
      return health.isQueued || health.hasBegun;
    },
  };
  const tracker = new ServiceTracker('IPv4', { ...(isListening && { isListening }) });
  const flows = {
    clear: async () => {},
    release: async () => {},
  };
  const controller = new Controller({
    ...{ clock, log, capture, tracker, ports, flows, minSyncPeriodMs },
    metrics: NO_METRICS,
    health: {
      queuedUpdate: () => {
        health.isQueued = true;
      },
      syncBegins: () => {
        health.hasBegun ||= health.isQueued;
        health.isQueued = false;
      },
      updated: () => {
        health.hasBegun = false;
      },
    },
    listeners: new Listeners({
      ...{ family: 'IPv4', dataPlane, clock, log, ports, flows, bindAddress: '0.0.0.0' },
      clientAddresses: { clientAddress: 'preserve', masqueradeAll: false },
      scheduler: 'rr',
    }),
    syncPeriodMs: 30_000,
    ...(onDelta && { onDelta }),
  });
  return { dataPlane, health, tracker, controller };
}
