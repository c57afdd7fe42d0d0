import { IptablesError } from '../../model/iptables.ts';
import type { ExecResult } from './exec.ts';

/** "Error occurred at line: 3", "line 3 failed", "line 3: RULE_APPEND failed", "COMMIT expected at line 3". */
const LINE = /\bline:? (\d+)/;

/** The second is what the kernel says of a legacy table that changed between reading and writing. */
const CONTENTION = /holding the xtables lock|Resource temporarily unavailable/;

/**
 * What a program's end means, or `undefined` when it went well. Exit codes alone do not tell: 4 is the xtables lock for
 * the legacy tools, while the nft ones also use it for rules that the kernel refused and for missing privileges.
 */
export function failureOf(program: string, result: ExecResult): IptablesError | undefined {
  switch (result.outcome) {
    case 'missing':
      return new IptablesError('missing', `${program} is not on PATH: install Debian's package "iptables"`);
    case 'timeout':
      return new IptablesError('timeout', `${program} did not end within ${result.timeoutMs} ms and was killed`);
    case 'failed':
      return new IptablesError('failed', `${program} could not be run: ${result.err}`);
    case 'exited':
      return result.code === 0 ? undefined : failureOfExit(program, result.code, result.stderr);
  }
}

function failureOfExit(program: string, code: number | null, stderr: string): IptablesError {
  const said = stderr.replace(/\s+/g, ' ').trim() || 'no message';
  const line = LINE.exec(stderr)?.[1];
  if (CONTENTION.test(stderr)) {
    return new IptablesError('locked', `${program} found the rules locked by another program, try again: ${said}`);
  }
  if (line !== undefined || code === 2) {
    const at = line === undefined ? undefined : Number(line);
    return new IptablesError('refused', `${program} refused the rules: ${said}`, { line: at });
  }
  if (stderr.includes('Permission denied')) {
    return new IptablesError('failed', `${program} needs root or CAP_NET_ADMIN and CAP_NET_RAW: ${said}`);
  }
  if (code === 4) return new IptablesError('locked', `${program} found no resources, try again: ${said}`);
  return new IptablesError('failed', `${program} ended ${code === null ? 'by a signal' : `with ${code}`}: ${said}`);
}
