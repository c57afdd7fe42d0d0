import { readFileSync } from 'node:fs';

/** A zombie is not alive. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** In KiB; a page that several processes share counts for each in part (`Pss` of proc(5)). */
export function proportionalKiB(pid: number): number {
  const found = /^Pss:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'));
  return Number(found?.[1]);
}

/** Of `/proc/PID/status`, in KiB: `VmRSS` now, `VmHWM` at the peak. */
export function residentKiB(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const found = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(found?.[1]);
}
