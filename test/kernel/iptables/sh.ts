import type { ExecRequest } from '../../../src/kernel/iptables/exec.ts';

/** A shell script as a request. */
export function sh(script: string, input?: string): ExecRequest {
  return { program: 'sh', args: ['-c', script], ...(input === undefined ? {} : { input }) };
}
