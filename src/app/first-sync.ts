import type { Health } from '../http/health.ts';
import type { IpFamily } from '../model/address.ts';
import type { Clock } from '../util/clock.ts';
import { sleep } from '../util/wait.ts';

/**
 * What waits for this service may be what its first sync waits for (an API server on this node), and systemd gives up a
 * start that takes 90 s.
 */
const PATIENCE_MS = 10_000;
const LOOK_MS = 20;

export interface Bounds {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

export interface Start extends Bounds {
  readonly families: readonly IpFamily[];
  readonly health: Pick<Health, 'lastUpdated'>;
}

/** Resolves when the Services are served for the first time: rules of all families lead to listeners. Or has waited long enough. */
export async function firstSync({ families, health, clock, signal }: Start): Promise<void> {
  await patience(() => families.every((family) => health.lastUpdated(family) !== undefined), { clock, signal });
}

/** Resolves when a successor knows which Services it has taken over. Or has waited long enough. */
export async function caughtUp(controlPlane: { readonly hasCaughtUp: boolean }, bounds: Bounds): Promise<void> {
  await patience(() => controlPlane.hasCaughtUp, bounds);
}

async function patience(isDone: () => boolean, { clock, signal }: Bounds): Promise<void> {
  const deadline = clock.now() + PATIENCE_MS;
  while (!isDone() && !signal.aborted && clock.now() < deadline) await sleep(LOOK_MS, clock, signal);
}
