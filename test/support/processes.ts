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

/** Of all its threads, since it began: `utime` and `stime` of proc_pid_stat(5), in hundredths of a second. */
export function cpuMsOf(pid: number): number {
  const [, , ...fields] = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/\(.*\)/, 'name')
    .split(' ');
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

/** Makes the program that follows process 1 of a PID namespace of its own, as in a container. */
export const AS_CONTAINER: readonly string[] = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child'];
