import type { Exec, ExecRequest, ExecResult } from '../../../kernel/iptables/exec.ts';
import { programName, type Tools } from '../../../kernel/iptables/flavour.ts';
import { failureOf } from '../../../kernel/iptables/iptables.ts';
import type { Offer, OfferRules } from '../kernel-rules.ts';

/** The first that works; the second for a process that is no administrator of the machine. */
const WAYS = [['--net'], ['--user', '--map-root-user', '--net']] as const;

/**
 * Offers rules to the kernel in a network namespace of their own, so that it is asked for each match without any rule of
 * this machine being touched. At most, it loads modules, as a run would.
 */
export function offerInEmptyNamespace(exec: Exec, { infix }: Tools): OfferRules {
  return async (family, text) => {
    const program = programName(family, infix, 'restore');
    let untold: Offer = { outcome: 'untold', err: '' };
    for (const way of WAYS) {
      const request: ExecRequest = { program: 'unshare', args: [...way, program, '-w', '5', '--noflush'], input: text };
      const result = await exec(request);
      const why = whyNotAsked(result);
      if (why === undefined) {
        const failure = failureOf(program, result);
        if (failure === undefined) return { outcome: 'accepted' };
        // A lock, a deadline or missing rights say nothing of the kernel.
        return { outcome: failure.code === 'refused' ? 'refused' : 'untold', err: failure.message };
      }
      untold = { outcome: 'untold', err: why };
    }
    return untold;
  };
}

/** `undefined` when the program itself was run to its end. */
function whyNotAsked(result: ExecResult): string | undefined {
  switch (result.outcome) {
    case 'missing':
      return 'there is no program unshare';
    case 'exited':
      return result.stderr.startsWith('unshare: ') ? result.stderr.trim() : undefined;
    case 'timeout':
      return `no end within ${result.timeoutMs} ms`;
    case 'failed':
      return result.err;
  }
}
