import { HANDLE, jumpsOf, withHandle } from '../../capture/iptables/chains.ts';
import { IptablesError, type Table } from '../../capture/iptables/iptables.ts';
import type { IpFamily } from '../../model/address.ts';
import { messageOf } from '../../util/text.ts';

export type KernelTables = typeof import('./kernel-tables.ts');

/** `undefined` where system calls do not work. */
export function loadKernelTables(): Promise<KernelTables | undefined> {
  return import('./kernel-tables.ts').catch(() => undefined);
}

interface MixedTableOptions {
  readonly kernel: KernelTables;
  readonly family: IpFamily;
  readonly table: Table;
  /** Only this chain. */
  readonly only?: string;
  /**
   * Runs one `iptables-restore --noflush` and returns its output. Rejects with {@link IptablesError}. `undefined` where
   * there are no tools: then the rules of all chains come from the kernel.
   */
  readonly restore: ((text: string) => Promise<string>) | undefined;
}

/** Chains that the tools print: those of kubelet, kube-proxy and this program. */
const KUBES = /^KUBE-[\w-]+$/;

/** Netlink accepts any bytes as a name; a dump separates words by blanks. */
const NAME = /^[\x21-\x7e]+$/;

const NOT_PRINTED = /chain `([^']+)' in table `[^']+' is incompatible/;
const MAX_NOT_PRINTED = 32;
const MAX_READS = 5;

/**
 * The dump, or with `only` the listing of one chain, of an nf_tables table that `iptables-save` refuses to print
 * because it holds rules that only `nft` can make (docs/adr/0020). The tools still print Kubernetes' chains one by one.
 * The rules of all other chains come from the kernel, with their handles ({@link withHandle}): where they lead, and our
 * jumps in full.
 */
export async function readMixedTable(options: MixedTableOptions): Promise<string> {
  const { kernel, table } = options;
  for (let reads = 0; reads < MAX_READS; reads++) {
    const generation = kernel.nftGeneration();
    // Several programs read the table one after another: the result is one state only if nothing changed meanwhile.
    const isSame = () => kernel.nftGeneration() === generation;
    try {
      const dump = await readOnce(options);
      if (isSame()) return dump;
    } catch (error) {
      if (isSame()) throw error instanceof IptablesError ? error : new IptablesError('failed', messageOf(error));
    }
  }
  throw new IptablesError('locked', `other programs keep changing rules while table ${table} is read, try again`);
}

async function readOnce(options: MixedTableOptions): Promise<string> {
  const { kernel, family, table, only } = options;
  const all = await kernel.nftChains(family, table);
  const chains = all.filter(({ name }) => NAME.test(name) && (only === undefined || name === only));
  if (chains.length === 0) return '';
  const { restore } = options;
  const isPrintable = (name: string) => restore !== undefined && KUBES.test(name);
  const kubes = chains.flatMap(({ name }) => (isPrintable(name) ? [name] : []));
  const { text, notPrinted } = await printed(kubes, options);
  const lines = [text];
  for (const { name } of chains) {
    if (!isPrintable(name) || notPrinted.has(name)) lines.push(await rulesFromKernel(name, options));
  }
  const policies = chains.flatMap(({ name, policy }) => (policy === undefined ? [] : `-P ${name} ${policy}`));
  const heads = chains.map(({ name, policy = '-' }) => `:${name} ${policy} [0:0]`);
  return [...(only === undefined ? [`*${table}`, ...heads] : policies), ...lines].map((line) => `${line}\n`).join('');
}

/** What the tools print of these chains, and the chains that they cannot print either. */
async function printed(
  chains: readonly string[],
  { table, restore }: MixedTableOptions,
): Promise<{ readonly text: string; readonly notPrinted: ReadonlySet<string> }> {
  const notPrinted = new Set<string>();
  for (;;) {
    const listing = chains.filter((chain) => !notPrinted.has(chain)).map((chain) => `-S ${chain}\n`);
    if (restore === undefined || listing.length === 0) return { text: '', notPrinted };
    try {
      // One program for all chains: the text for a restore may include listings.
      const text = await restore(`*${table}\n${listing.join('')}COMMIT\n`);
      return { text: text.trimEnd(), notPrinted };
    } catch (error) {
      const chain = NOT_PRINTED.exec(messageOf(error))?.[1];
      const isNew = chain !== undefined && chains.includes(chain) && !notPrinted.has(chain);
      if (!isNew || notPrinted.size === MAX_NOT_PRINTED) throw error;
      notPrinted.add(chain);
    }
  }
}

async function rulesFromKernel(chain: string, { kernel, family, table }: MixedTableOptions): Promise<string> {
  const jumps = jumpsOf(table, { dropsUnassigned: true }).filter((jump) => jump.from === chain);
  const rules = await kernel.nftRules(family, table, chain);
  const lines = rules.map(({ handle, target, content }) => {
    // Not by the tool's "-C": it gives up at the first rule that it cannot read.
    const ours = jumps.find(({ to, comment }) => target === `-j ${to}` && content.includes(`${comment}\0`));
    return `-A ${chain} ${withHandle(ours?.spec ?? target, handle)}`.trimEnd();
  });
  return lines.join('\n');
}

const DELETION = new RegExp(`^-D (\\S+) ${HANDLE}.*\n`, 'gm');

/**
 * The rules that a text for `iptables-restore` deletes by {@link readMixedTable}'s handles, and the text without them.
 */
export function deletions(text: string): {
  readonly rules: readonly { readonly chain: string; readonly handle: bigint }[];
  readonly rest: string;
} {
  const rules = Array.from(text.matchAll(DELETION), ([, chain = '', handle = '']) => ({
    chain,
    handle: BigInt(handle),
  }));
  return { rules, rest: rules.length === 0 ? text : text.replace(DELETION, '') };
}
