import type { Flavour } from '../../kernel/iptables/flavour.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

export interface ToolFacts {
  /** `--iptables-mode` */
  readonly mode: Flavour | 'auto';
  /** What a run would use; `undefined` when it is not installed. */
  readonly chosen: Flavour | undefined;
  /** Kubelet's hint chains are in this one. */
  readonly hinted: Flavour | undefined;
  /** The xtables lock, which only the legacy tools take. */
  readonly lock: { readonly path: string; readonly isWritable: boolean };
}

export function checkTools({ mode, chosen, hinted, lock }: ToolFacts): readonly Finding[] {
  if (chosen === undefined) {
    const wanted = mode === 'auto' ? 'no iptables-restore is on PATH' : `no iptables of the ${mode} flavour is on PATH`;
    return [fail(wanted, 'install Debian\'s package "iptables"')];
  }
  const findings: Finding[] = [];
  if (hinted !== undefined && hinted !== chosen) {
    findings.push(
      warn(
        `the kubelet of this node uses iptables-${hinted}, and ${mode === 'auto' ? 'that is not installed' : `--iptables-mode says ${mode}`}: rules of both count, in an order that nobody expects`,
        mode === 'auto' ? `install iptables-${hinted}` : 'leave --iptables-mode away',
      ),
    );
  } else {
    findings.push(ok(`iptables-${chosen}: ${whyChosen({ mode, hinted })}`));
  }
  if (chosen === 'legacy' && !lock.isWritable) {
    findings.push(
      fail(
        `the lock ${lock.path}, which iptables-legacy takes, cannot be written`,
        'mount it from the host into the Pod, or let the unit write it (ReadWritePaths=/run)',
      ),
    );
  }
  return findings;
}

function whyChosen({ mode, hinted }: Pick<ToolFacts, 'mode' | 'hinted'>): string {
  if (mode !== 'auto') return '--iptables-mode says so';
  return hinted === undefined
    ? "this machine's own choice, as there is no hint of a kubelet"
    : 'the one that the kubelet uses';
}
