import type { IpFamily } from '../../model/address.ts';
import { IptablesError, type Table } from '../../model/iptables.ts';
import { HANDLE, JUMPS, withHandle } from '../../rules/chains.ts';
import { messageOf } from '../../util/text.ts';

/** What of `kernel-tables.ts` is needed here. */
export type KernelTables = typeof import('./kernel-tables.ts');

export interface MixedTableOptions {
  readonly kernel: KernelTables;
  readonly family: IpFamily;
  readonly table: Table;
  /** Of this chain alone. */
  readonly only?: string;
  /** One `iptables-restore --noflush`: what it printed. Rejects with {@link IptablesError}. */
  readonly restore: (text: string) => Promise<string>;
}

/** Chains that the tools are asked to print: those of kubelet, of kube-proxy and of this program. */
const KUBES = /^KUBE-[\w-]+$/;

/** Netlink takes any bytes for a name; a dump has no place for blanks. */
const NAME = /^[\x21-\x7e]+$/;

const NOT_PRINTED = /chain `([^']+)' in table `[^']+' is incompatible/;

const MAX_NOT_PRINTED = 32;
const MAX_READS = 5;

/**
 * The dump, or with `only` the listing of one chain, of a table of nf_tables that `iptables-save` refuses to print, as it
 * holds what only `nft` can make (docs/adr/0020). The tools still print chains of Kubernetes, one by one. The rules of all
 * others come from the kernel, with their handles ({@link withHandle}): where they lead, and all of a jump of ours.
 */
export async function readMixedTable(options: MixedTableOptions): Promise<string> {
  const { kernel, table } = options;
  for (let reads = 0; reads < MAX_READS; reads++) {
    const generation = kernel.nftGeneration();
    // Several programs read it one after another: only what nobody changed meanwhile is one state of it.
    const isTheSame = () => kernel.nftGeneration() === generation;
    try {
      const dump = await readOnce(options);
      if (isTheSame()) return dump;
    } catch (error) {
      if (isTheSame()) throw error instanceof IptablesError ? error : new IptablesError('failed', messageOf(error));
    }
  }
  throw new IptablesError('locked', `other programs keep changing rules while table ${table} is read, try again`);
}

async function readOnce(options: MixedTableOptions): Promise<string> {
  const { kernel, family, table, only } = options;
  const all = await kernel.nftChains(family, table);
  const some = all.filter(({ name }) => NAME.test(name) && (only === undefined || name === only));
  if (some.length === 0) return '';
  const chains = some.map(({ name }) => name);
  const kubes = chains.filter((chain) => KUBES.test(chain));
  const { text, notPrinted } = await printed(kubes, options);
  const lines = [text];
  for (const chain of chains) {
    if (!KUBES.test(chain) || notPrinted.has(chain)) lines.push(await rulesFromKernel(chain, options));
  }
  const policies = some.flatMap(({ name, policy }) => (policy === undefined ? [] : `-P ${name} ${policy}`));
  const heads = some.map(({ name, policy = '-' }) => `:${name} ${policy} [0:0]`);
  return [...(only === undefined ? [`*${table}`, ...heads] : policies), ...lines].map((line) => `${line}\n`).join('');
}

/** What the tools print of these chains; and the chains that they cannot print either. */
async function printed(
  chains: readonly string[],
  { table, restore }: MixedTableOptions,
): Promise<{ readonly text: string; readonly notPrinted: ReadonlySet<string> }> {
  const notPrinted = new Set<string>();
  for (;;) {
    const listing = chains.filter((chain) => !notPrinted.has(chain)).map((chain) => `-S ${chain}\n`);
    if (listing.length === 0) return { text: '', notPrinted };
    try {
      // One program for all of them: what it is to restore may include listings.
      const text = await restore(`*${table}\n${listing.join('')}COMMIT\n`);
      return { text: text.trimEnd(), notPrinted };
    } catch (error) {
      const chain = NOT_PRINTED.exec(messageOf(error))?.[1];
      if (chain === undefined || !chains.includes(chain) || notPrinted.has(chain)) throw error;
      if (notPrinted.size === MAX_NOT_PRINTED) throw error;
      notPrinted.add(chain);
    }
  }
}

async function rulesFromKernel(chain: string, { kernel, family, table }: MixedTableOptions): Promise<string> {
  const jumps = JUMPS.filter((jump) => jump.table === table && jump.from === chain);
  const rules = await kernel.nftRules(family, table, chain);
  const lines = rules.map(({ handle, target, content }) => {
    // To ask the tool whether a rule is there ("-C") will not do: it gives up at the first that it cannot read.
    const ours = jumps.find(({ to, comment }) => target === `-j ${to}` && content.includes(`${comment}\0`));
    return `-A ${chain} ${withHandle(ours?.spec ?? target, handle)}`.trimEnd();
  });
  return lines.join('\n');
}

const DELETION = new RegExp(`^-D (\\S+) ${HANDLE}.*\n`, 'gm');

/** The rules that a text for `iptables-restore` names by {@link readMixedTable}'s handles, and the text without them. */
export function deletions(text: string): {
  readonly rules: readonly { readonly chain: string; readonly handle: bigint }[];
  readonly rest: string;
} {
  if (text.search(DELETION) === -1) return { rules: [], rest: text };
  const rules = [...text.matchAll(DELETION)].map(([, chain = '', handle = '']) => ({ chain, handle: BigInt(handle) }));
  return { rules, rest: text.replace(DELETION, '') };
}
