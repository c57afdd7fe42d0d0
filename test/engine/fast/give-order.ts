import { renameSync, writeFileSync } from 'node:fs';

/** To `programs/faulty-worker.ts`, which looks all the time: under its name the order is complete. */
export function giveOrder(file: string, what: 'throw' | 'hang'): void {
  writeFileSync(`${file}.new`, what);
  renameSync(`${file}.new`, file);
}
