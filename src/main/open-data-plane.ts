import type { Config } from '../cli/config.ts';
import type { DataPlane, DataPlaneObserver } from '../contracts/data-plane.ts';
import type { Log } from '../contracts/log.ts';
import { createFastDataPlane, defaultWorkers } from '../dataplane/fast/create.ts';
import { createNodeDataPlane } from '../dataplane/node/node-data-plane.ts';
import { systemClock as clock } from '../host/system-clock.ts';
import { messageOf } from '../model/message-of.ts';

export interface OpenedDataPlane {
  readonly engine: 'fast' | 'node';
  readonly dataPlane: DataPlane;
  /** Threads of the fast engine. */
  readonly workers?: number;
}

export async function openDataPlane(
  { engine, workers = defaultWorkers(), dataPlane: options }: Config,
  { log, observer }: { readonly log: Log; readonly observer: DataPlaneObserver },
): Promise<OpenedDataPlane> {
  if (engine !== 'node') {
    try {
      const dataPlane = await createFastDataPlane({ options: { ...options, workers }, observer, clock, log });
      return { engine: 'fast', dataPlane, workers };
    } catch (error) {
      const err = messageOf(error);
      if (engine === 'fast') throw new Error(`the fast engine cannot run here (${err}); use --dataplane node`);
      log.warn('The fast engine cannot run here; the portable one carries the traffic, more slowly', { err });
    }
  }
  return { engine: 'node', dataPlane: createNodeDataPlane({ options, observer, clock, random: Math.random }) };
}
