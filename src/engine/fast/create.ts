import { availableParallelism } from 'node:os';
import type { DataPlane } from '../../model/data-plane.ts';
import type { FastDataPlaneSetup } from './fast-data-plane.ts';

/**
 * The engine on libc's own sockets, in worker threads. Rejects with an Error that says why when it cannot run here: not
 * Linux on x64 or arm64, koffi's addon missing or not loadable, a system call or a structure other than expected.
 */
export async function createFastDataPlane(setup: FastDataPlaneSetup): Promise<DataPlane> {
  // Imported only when wanted: the other engine must work where koffi's addon does not load.
  const { startFastDataPlane } = await import('./fast-data-plane.ts');
  return startFastDataPlane(setup);
}

/** As many as there are cores: a busy Service port is carried by all workers. */
export function defaultWorkers(cores: number = availableParallelism()): number {
  return cores;
}
