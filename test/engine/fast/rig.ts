import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { createFastDataPlane } from '../../../src/engine/fast/create.ts';
import type { Spread } from '../../../src/engine/fast/worker/protocol.ts';
import type { DataPlane, ListenerStats } from '../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { Clock } from '../../../src/util/clock.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { OPTIONS, textObserver } from '../../compliance/data-plane/harness.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { WORKER_SCRIPT } from '../../support/worker-script.ts';

export { OPTIONS };

export interface FastRig {
  readonly plane: DataPlane;
  readonly log: RecordingLog;
  /** Every event, as its name and what an assertion needs of it. */
  readonly events: string[];
  stats(name: ServicePortName): ListenerStats;
}

interface RigOptions {
  readonly congestionControl?: string;
  readonly workers?: number;
  readonly clock?: Clock;
  readonly entry?: URL;
  readonly spread?: Spread;
  readonly udpMaxFlows?: number;
}

/** The fast engine under the machine's clock, with real sockets and threads. */
export async function fastRig(
  t: TestContext,
  { workers = 1, clock = systemClock, entry = WORKER_SCRIPT, congestionControl, spread, ...limits }: RigOptions = {},
): Promise<FastRig> {
  const events: string[] = [];
  const log = new RecordingLog();
  const plane = await createFastDataPlane({
    options: { ...OPTIONS, ...limits, workers, congestionControl },
    observer: textObserver(events),
    clock,
    log,
    entry,
    ...(spread !== undefined && { spread }),
  });
  t.after(() => plane.shutdown());
  const stats = (wanted: ServicePortName): ListenerStats => {
    for (const each of plane.stats()) if (each.name === wanted) return each;
    throw new Error(`${wanted} is not open`);
  };
  return { plane, log, events, stats };
}

/** Its workers run `programs/faulty-worker.ts`. */
export async function faultyRig(t: TestContext, { atFirst, ...options }: RigOptions & { atFirst?: 'hang' } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'faulty-worker-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const entry = pathToFileURL(join(import.meta.dirname, 'programs/faulty-worker.ts'));
  const file = join(folder, 'order');
  /** What the worker of this index does in its next turn, with its first Service port if it finds one `busy`. */
  const order = (what: 'throw' | 'hang' | 'hoard' | 'busy', index = 0): void => {
    // Renamed, because the worker may read a file that is not written yet.
    writeFileSync(`${file}.new`, what);
    renameSync(`${file}.new`, `${file}.${index}`);
  };
  if (atFirst !== undefined) order(atFirst);
  // A worker gets a copy when it starts.
  process.env['KUP_TEST_ORDER'] = file;
  const rig = await fastRig(t, { entry, ...options });
  const hang = async () => {
    order('hang');
    await waitFor('the worker to hang', () => !existsSync(`${file}.0`));
  };
  /** Resolves when the data plane has seen that the worker is gone. */
  const fail = async () => {
    order('throw');
    await waitFor('the worker to fail', () => rig.log.of('error').length > 0);
  };
  return { ...rig, entry, order, hang, fail };
}

export function openPort(
  { plane }: FastRig,
  name: ServicePortName,
  endpoints: readonly NamedEndpoint[],
  protocol: 'TCP' | 'UDP' = 'TCP',
): Promise<number> {
  const spec = listenSpec({ name, protocol, address: '127.0.0.1', port: 0 });
  return plane.open(spec, { endpoints, affinity: { type: 'None' } });
}

/** How many descriptors this process has open. */
export function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}
