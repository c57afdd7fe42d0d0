import { readdirSync } from 'node:fs';
import type { TestContext } from 'node:test';
import { createFastDataPlane } from '../../../src/engine/fast/create.ts';
import type { DataPlane, ListenerStats } from '../../../src/model/data-plane.ts';
import type { Endpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { Clock } from '../../../src/util/clock.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { OPTIONS } from '../../compliance/data-plane/harness.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { listenSpec } from '../../support/listen-spec.ts';

export { OPTIONS };

export interface FastRig {
  readonly plane: DataPlane;
  readonly log: RecordingLog;
  /** Every event, as its name and what an assertion needs of it. */
  readonly events: string[];
  stats(name: ServicePortName): ListenerStats;
}

/** The fast engine under the machine's clock; real sockets and threads. */
export async function fastRig(
  t: TestContext,
  { workers = 1, clock = systemClock, entry }: { workers?: number; clock?: Clock; entry?: URL } = {},
): Promise<FastRig> {
  const events: string[] = [];
  const log = new RecordingLog();
  const plane = await createFastDataPlane({
    options: { ...OPTIONS, workers },
    observer: {
      turnedAway: ({ reason }) => events.push(`turned away: ${reason}`),
      dialFailed: ({ backend, reason }) => events.push(`dial failed: ${backend} ${reason}`),
      limited: ({ limit }) => events.push(`limited: ${limit}`),
      listenerFailed: ({ err }) => events.push(`listener failed: ${err}`),
    },
    clock,
    log,
    ...(entry !== undefined && { entry }),
  });
  t.after(() => plane.shutdown());
  const stats = (wanted: ServicePortName): ListenerStats => {
    for (const each of plane.stats()) if (each.name === wanted) return each;
    throw new Error(`${wanted} is not open`);
  };
  return { plane, log, events, stats };
}

export function openPort(
  { plane }: FastRig,
  name: ServicePortName,
  endpoints: readonly Endpoint[],
  protocol: 'TCP' | 'UDP' = 'TCP',
): Promise<number> {
  const spec = listenSpec({ name, protocol, address: '127.0.0.1', port: 0 });
  return plane.open(spec, { endpoints, affinity: { type: 'None' } });
}

/** How many descriptors this process has open. */
export function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}
