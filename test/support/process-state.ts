import { readFileSync } from 'node:fs';

/** A zombie, which its parent has not yet taken note of, is not alive. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
