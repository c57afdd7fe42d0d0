import type { IpFamily } from '../../model/address.ts';
import type { Table } from '../../model/iptables.ts';
import type { Exec } from './exec.ts';

/**
 * Debian and others ship two sets of tools that look alike: one writes nf_tables, one the older x_tables. Rules made
 * with one are invisible to the other, yet the kernel applies both.
 */
export type Flavour = 'nft' | 'legacy';

/** A flavour's tools on this machine. `infix` stands in their names: "iptables" + infix + "-restore". */
export interface Tools {
  readonly flavour: Flavour;
  readonly infix: '' | '-nft' | '-legacy';
}

/** Without a verb, the tool that works on single rules and chains. */
export function programName(family: IpFamily, infix: Tools['infix'], verb?: 'save' | 'restore'): string {
  return `${family === 'IPv4' ? 'iptables' : 'ip6tables'}${infix}${verb === undefined ? '' : `-${verb}`}`;
}

/** The tools of one flavour, or `undefined` when they are not installed. */
export async function findTools(flavour: Flavour, exec: Exec): Promise<Tools | undefined> {
  if ((await installedFlavour(`-${flavour}`, exec)) !== undefined) return { flavour, infix: `-${flavour}` };
  // Distributions with a single flavour give it only the plain names.
  if ((await installedFlavour('', exec)) === flavour) return { flavour, infix: '' };
  return undefined;
}

/** Every flavour that is installed, nft first. */
export async function installedFlavours(exec: Exec): Promise<readonly Flavour[]> {
  const found: Flavour[] = [];
  for (const flavour of ['nft', 'legacy'] as const) {
    if ((await findTools(flavour, exec)) !== undefined) found.push(flavour);
  }
  return found;
}

/**
 * The flavour that the rest of the node uses, because rules in the other would be applied in an order that nobody
 * expects. As kubernetes-sigs/iptables-wrappers (`internal/iptables/detect.go`): kubelet leaves a hint chain in the
 * flavour that it uses. Without a hint the machine's own choice holds, which is what `iptables-restore` is (there it is
 * nft, as the wrappers bring both flavours and have no machine to ask).
 *
 * `undefined` when no flavour is installed.
 */
export async function detectTools(exec: Exec): Promise<Tools | undefined> {
  const hinted = await hintedFlavour(exec);
  const tools = hinted && (await findTools(hinted, exec));
  if (tools !== undefined) return tools;
  const plain = await installedFlavour('', exec);
  if (plain !== undefined) return { flavour: plain, infix: '' };
  return (await findTools('nft', exec)) ?? (await findTools('legacy', exec));
}

const HINTS = ['KUBE-IPTABLES-HINT', 'KUBE-KUBELET-CANARY'];
const HINT = new RegExp(`^:(?:${HINTS.join('|')}) `, 'm');

/**
 * Whether `iptables-save -t table` has printed something else than the table: "# Table `nat' is incompatible, use 'nft'
 * tool.", with exit code 0, when one rule in it was made with nft and iptables has no words for it. That is no empty table.
 */
export function isIncompatible(text: string, table: Table): boolean {
  return text.startsWith('#') && !text.includes(`*${table}\n`);
}

/** Where kubelet's hint is; `undefined` when there is none. */
export async function hintedFlavour(exec: Exec): Promise<Flavour | undefined> {
  // Best effort, as in the wrappers: a tool that is missing or fails has no hint to give.
  // The legacy tools are not given a table, for that would create it; without one they print those that there are.
  const places = [
    { flavour: 'nft', args: ['-t', 'mangle'] },
    { flavour: 'legacy', args: [] },
  ] as const;
  for (const { flavour, args } of places) {
    for (const family of ['IPv4', 'IPv6'] as const) {
      const result = await exec({ program: programName(family, `-${flavour}`, 'save'), args });
      if (result.outcome !== 'exited') continue;
      if (HINT.test(result.stdout)) return flavour;
      if (flavour === 'nft' && isIncompatible(result.stdout, 'mangle') && (await hasNftHint(family, exec)))
        return flavour;
    }
  }
  return undefined;
}

/** Chain by chain: for a table that is not printed as a whole. */
async function hasNftHint(family: IpFamily, exec: Exec): Promise<boolean> {
  for (const chain of HINTS) {
    const listed = await exec({ program: programName(family, '-nft'), args: ['-t', 'mangle', '-S', chain] });
    if (listed.outcome === 'exited' && listed.code === 0) return true;
  }
  return false;
}

async function installedFlavour(infix: Tools['infix'], exec: Exec): Promise<Flavour | undefined> {
  const result = await exec({ program: programName('IPv4', infix, 'restore'), args: ['--version'] });
  if (result.outcome !== 'exited' || result.code !== 0) return undefined;
  // "iptables-restore v1.8.9 (nf_tables)"; releases before 1.8 had one flavour and did not say which.
  return result.stdout.includes('nf_tables') ? 'nft' : 'legacy';
}
