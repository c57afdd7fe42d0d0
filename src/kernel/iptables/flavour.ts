import { readFile } from 'node:fs/promises';
import type { Table } from '../../capture/iptables/iptables.ts';
import type { IpFamily } from '../../model/address.ts';
import type { Exec } from './exec.ts';

/**
 * Debian and others ship two sets of tools with the same interface: one writes nf_tables, the other the older x_tables.
 * Rules of one set are invisible to the other, yet the kernel applies both.
 */
export const FLAVOURS = ['nft', 'legacy'] as const;
export type Flavour = (typeof FLAVOURS)[number];

/** A flavour's tools on this machine. `infix` is part of their names: "iptables" + infix + "-restore". */
export interface Tools {
  readonly flavour: Flavour;
  readonly infix: '' | '-nft' | '-legacy';
}

/** Without a verb, the tool that works on single rules and chains. */
export function programName(family: IpFamily, infix: Tools['infix'], verb?: 'save' | 'restore'): string {
  return `${family === 'IPv4' ? 'iptables' : 'ip6tables'}${infix}${verb === undefined ? '' : `-${verb}`}`;
}

/** The iptables programs of this machine. Each is asked once what it is. */
export class InstalledPrograms {
  readonly #exec: Exec;
  readonly #flavours = new Map<Tools['infix'], Promise<Flavour | undefined>>();
  #hint: Promise<Flavour | undefined> | undefined;

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** The tools of one flavour, or `undefined` when they are not installed. */
  async find(flavour: Flavour): Promise<Tools | undefined> {
    if ((await this.#flavourOf(`-${flavour}`)) !== undefined) return { flavour, infix: `-${flavour}` };
    // Distributions with a single flavour have only the plain names.
    if ((await this.#flavourOf('')) === flavour) return { flavour, infix: '' };
    return undefined;
  }

  /** The tools of every installed flavour, nft first. */
  async all(): Promise<readonly Tools[]> {
    const found = await Promise.all(FLAVOURS.map((flavour) => this.find(flavour)));
    return found.filter((tools) => tools !== undefined);
  }

  /** The tools of this flavour, or with `auto` those of the node. `undefined` when they are not installed. */
  choose(mode: Flavour | 'auto'): Promise<Tools | undefined> {
    return mode === 'auto' ? this.#detect() : this.find(mode);
  }

  /** The flavour in which kubelet's hint is; `undefined` when there is none. */
  hint(): Promise<Flavour | undefined> {
    this.#hint ??= hintedFlavour(this.#exec);
    return this.#hint;
  }

  /**
   * The flavour that the rest of the node uses, because rules of two flavours would apply in an unexpected order. As in
   * kubernetes-sigs/iptables-wrappers (`internal/iptables/detect.go`), kubelet's hint chain decides. Without a hint it
   * is the flavour of the machine's `iptables-restore` (the wrappers take nft, as their image has no default of the
   * machine).
   */
  async #detect(): Promise<Tools | undefined> {
    const hinted = await this.hint();
    const tools = hinted && (await this.find(hinted));
    if (tools !== undefined) return tools;
    const plain = await this.#flavourOf('');
    if (plain !== undefined) return { flavour: plain, infix: '' };
    return (await this.find('nft')) ?? (await this.find('legacy'));
  }

  #flavourOf(infix: Tools['infix']): Promise<Flavour | undefined> {
    const known = this.#flavours.get(infix) ?? installedFlavour(infix, this.#exec);
    this.#flavours.set(infix, known);
    return known;
  }
}

const HINTS = ['KUBE-IPTABLES-HINT', 'KUBE-KUBELET-CANARY'];
const HINT = new RegExp(`^:(?:${HINTS.join('|')}) `, 'm');

/**
 * Whether `iptables-save -t table` printed something else than the table: "# Table `nat' is incompatible, use 'nft'
 * tool.", with exit code 0, because nft made a rule in it that iptables cannot express. Such a table is not empty.
 */
export function isIncompatible(text: string, table: Table): boolean {
  return text.startsWith('#') && !text.includes(`*${table}\n`);
}

async function hintedFlavour(exec: Exec): Promise<Flavour | undefined> {
  // As in the wrappers, a tool that is missing or fails gives no hint.
  for (const flavour of FLAVOURS) {
    // Naming a table would make the legacy tools create it; without a name they print the existing tables.
    const args = flavour === 'nft' ? ['-t', 'mangle'] : [];
    for (const family of ['IPv4', 'IPv6'] as const) {
      const result = await exec({ program: programName(family, `-${flavour}`, 'save'), args });
      if (result.outcome !== 'exited') continue;
      if (HINT.test(result.stdout)) return flavour;
      const isUnprinted = flavour === 'nft' && isIncompatible(result.stdout, 'mangle');
      if (isUnprinted && (await hasNftHint(family, exec))) return flavour;
    }
  }
  return undefined;
}

/** Looks chain by chain in a table that is not printed as a whole. */
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
  // "iptables-restore v1.8.9 (nf_tables)"; releases before 1.8 had only the legacy flavour and printed none.
  return result.stdout.includes('nf_tables') ? 'nft' : 'legacy';
}

/** Whether the legacy table exists. Reading one that does not would create it. */
export async function hasLegacyTable(family: IpFamily, table: Table): Promise<boolean> {
  try {
    const names = await readFile(`/proc/net/${family === 'IPv4' ? 'ip' : 'ip6'}_tables_names`, 'latin1');
    return names.split('\n').includes(table);
  } catch (error) {
    // Missing: the kernel has no legacy tables at all. Not readable: the tool will report that better.
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}
