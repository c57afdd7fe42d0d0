import { getAsset, isSea } from 'node:sea';

/** The module that runs in a worker, or the text of one. */
export type WorkerEntry = URL | string;

/** In the one executable, it comes from this process' own, whatever has taken its place on disk. */
export function workerEntry(): WorkerEntry {
  return isSea() ? getAsset('worker.js', 'utf8') : new URL('./worker/main.ts', import.meta.url);
}
