import type { TestContext } from 'node:test';
import { createNodeDataPlane, loadKernelSockets } from '../../../src/engine/node/node-data-plane.ts';
import type { DataPlane, DataPlaneOptions } from '../../../src/model/data-plane.ts';
import { OPTIONS, textObserver } from '../../compliance/data-plane/harness.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

export interface ManualRig {
  readonly plane: DataPlane;
  readonly clock: ManualClock;
  /** Every event, as its name and what an assertion needs of it. */
  readonly events: string[];
}

const TIMEOUTS = { tcpHalfOpenTimeoutMs: 300_000, udpIdleTimeoutMs: 250, udpFirstReplyTimeoutMs: 5000 };
const kernel = await loadKernelSockets();

/** The node engine with real sockets, under a clock that the test advances. */
export function manualRig(
  t: TestContext,
  options: Partial<DataPlaneOptions> = {},
  localAddresses: () => readonly string[] = () => ['127.0.0.1'],
  clock = new ManualClock(),
): ManualRig {
  const events: string[] = [];
  const plane = createNodeDataPlane({
    options: { ...OPTIONS, ...TIMEOUTS, ...options },
    observer: textObserver(events),
    clock,
    random: () => 0.5,
    kernel,
    localAddresses,
  });
  t.after(() => plane.shutdown());
  return { plane, clock, events };
}
