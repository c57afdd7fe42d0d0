import { readFileSync } from 'node:fs';

/** Of `/proc/PID/status`, in KiB: `VmRSS` now, `VmHWM` at the peak. */
export function residentKiB(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const found = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(found?.[1]);
}
