import type { TestContext } from 'node:test';
import { createNodeDataPlane, loadKernelSockets } from '../../../src/engine/node/node-data-plane.ts';
import type { DataPlane, DataPlaneObserver, DataPlaneOptions } from '../../../src/model/data-plane.ts';
import { OPTIONS } from '../../compliance/data-plane/harness.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

export interface ManualRig {
  readonly plane: DataPlane;
  readonly clock: ManualClock;
  /** Every event, as its name and what an assertion needs of it. */
  readonly events: string[];
}

const TIMEOUTS = { tcpHalfOpenTimeoutMs: 300_000, udpIdleTimeoutMs: 250, udpFirstReplyTimeoutMs: 5000 };
const kernel = await loadKernelSockets();

/** The node engine under a clock that stands still; real sockets all the same. */
export function manualRig(
  t: TestContext,
  options: Partial<DataPlaneOptions> = {},
  localAddresses: () => readonly string[] = () => ['127.0.0.1'],
  clock = new ManualClock(),
): ManualRig {
  const events: string[] = [];
  const observer: DataPlaneObserver = {
    turnedAway: ({ reason }) => events.push(`turned away: ${reason}`),
    dialFailed: ({ backend, reason }) => events.push(`dial failed: ${backend} ${reason}`),
    limited: ({ limit }) => events.push(`limited: ${limit}`),
    listenerFailed: ({ err }) => events.push(`listener failed: ${err}`),
  };
  const plane = createNodeDataPlane({
    options: { ...OPTIONS, ...TIMEOUTS, ...options },
    observer,
    clock,
    random: () => 0.5,
    kernel,
    localAddresses,
  });
  t.after(() => plane.shutdown());
  return { plane, clock, events };
}
