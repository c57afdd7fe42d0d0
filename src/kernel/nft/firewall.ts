import type { Firewall } from '../../capture/nft/firewall.ts';
import type { IpFamily } from '../../model/address.ts';
import { CaptureError } from '../../model/capture.ts';
import type { Exec } from '../iptables/exec.ts';
import { hasLegacyTable, type InstalledPrograms, programName, type Tools } from '../iptables/flavour.ts';

const COMMENT = 'kube-userspace-proxy: what its nft table has marked';
const LOCK_WAIT_S = '5';

/** What the chain INPUT of one flavour needs. */
type State = 'nothing' | 'rule' | 'intact';

export interface FirewallOptions {
  readonly exec: Exec;
  readonly programs: InstalledPrograms;
  /** Of what our table lets in; without one nothing can be told apart. */
  readonly mark: number | undefined;
}

export function createFirewall({ exec, programs, mark }: FirewallOptions): Firewall {
  if (mark === undefined) return { letIn: async () => {}, isIntact: async () => true, remove: async () => {} };
  const text = `0x${mark.toString(16)}`;
  const spec = `-m mark --mark ${text}/${text} -m comment --comment "${COMMENT}" -j ACCEPT`;
  /** The rules of INPUT; `undefined` where there is no such table, or where iptables cannot print it. */
  const list = async (family: IpFamily, { flavour, infix }: Tools): Promise<readonly string[] | undefined> => {
    if (flavour === 'legacy' && !(await hasLegacyTable(family, 'filter'))) return undefined;
    const args = ['-w', LOCK_WAIT_S, '-t', 'filter', '-S', 'INPUT'];
    const result = await exec({ program: programName(family, infix), args });
    return result.outcome === 'exited' && result.code === 0 ? result.stdout.trimEnd().split('\n') : undefined;
  };
  const restore = async (family: IpFamily, { infix }: Tools, lines: readonly string[]): Promise<void> => {
    const program = programName(family, infix, 'restore');
    const input = ['*filter', ...lines, 'COMMIT', ''].join('\n');
    const result = await exec({ program, args: ['-w', LOCK_WAIT_S, '--noflush'], input });
    if (result.outcome === 'exited' && result.code === 0) return;
    const said = result.outcome === 'exited' ? result.stderr.replace(/\s+/g, ' ').trim() : result.outcome;
    throw new CaptureError(`${program} did not accept a rule for INPUT: ${said}`, { mayPass: true });
  };
  const ours = (rules: readonly string[]) => rules.filter((rule) => rule === `-A INPUT ${spec}`);
  const stateOf = (rules: readonly string[]): State => {
    const own = ours(rules).length;
    const isNeeded = rules.includes('-P INPUT DROP') || rules.filter((rule) => rule.startsWith('-A ')).length > own;
    if (!isNeeded) return 'nothing';
    return own === 1 ? 'intact' : 'rule';
  };
  const deletions = (rules: readonly string[]) => ours(rules).map(() => `-D INPUT ${spec}`);

  return {
    async letIn(family) {
      for (const each of await programs.all()) {
        const rules = await list(family, each);
        if (rules === undefined) continue;
        if (stateOf(rules) === 'nothing') {
          // What needed it is gone, such as our own rules of iptables.
          if (ours(rules).length > 0) await restore(family, each, deletions(rules));
          continue;
        }
        const isFirst = rules.find((rule) => rule.startsWith('-A ')) === `-A INPUT ${spec}`;
        if (isFirst && stateOf(rules) === 'intact') continue;
        await restore(family, each, [...deletions(rules), `-I INPUT 1 ${spec}`]);
      }
    },
    async isIntact(family) {
      for (const each of await programs.all()) {
        const rules = await list(family, each);
        if (rules !== undefined && stateOf(rules) === 'rule') return false;
      }
      return true;
    },
    async remove(family) {
      for (const each of await programs.all()) {
        const rules = (await list(family, each)) ?? [];
        if (ours(rules).length > 0) await restore(family, each, deletions(rules));
      }
    },
  };
}
