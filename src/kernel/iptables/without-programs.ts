import { isKubeProxys, isOurs } from '../../capture/iptables/chains.ts';
import { type Iptables, IptablesError } from '../../capture/iptables/iptables.ts';
import { messageOf } from '../../util/text.ts';
import { deletions, type KernelTables, readMixedTable } from './mixed-table.ts';

/**
 * What iptables-nft has written, where its programs are gone: enough to find our chains and to remove them. What the
 * rules say cannot be read, and none can be added. `undefined` where the kernel has no nf_tables.
 */
export async function iptablesWithoutPrograms(): Promise<Iptables | undefined> {
  const kernel = await import('./kernel-tables.ts').catch(() => undefined);
  return kernel === undefined || !hasNfTables(kernel) ? undefined : removing(kernel);
}

function hasNfTables(kernel: KernelTables): boolean {
  try {
    return kernel.nftGeneration() !== undefined;
  } catch {
    return false;
  }
}

function removing(kernel: KernelTables): Iptables {
  return {
    flavour: 'nft',
    async save(family, table) {
      const chains = await kernel.nftChains(family, table).catch(fail);
      // One look where nothing is left: other programs may have thousands of chains.
      if (!chains.some(({ name }) => isOurs(table, name) || isKubeProxys(table, name))) return '';
      return await readMixedTable({ kernel, family, table, restore: undefined });
    },
    list: (family, table, only) => readMixedTable({ kernel, family, table, only, restore: undefined }),
    generation: () => undefined,

    async restore(family, text) {
      const { rules, rest } = deletions(text);
      const table = (['nat', 'filter', 'mangle'] as const).find((name) => rest.startsWith(`*${name}\n`));
      const named = (start: string) =>
        rest
          .split('\n')
          .flatMap((line) => (line.startsWith(start) ? (line.slice(start.length).split(' ', 1)[0] ?? []) : []));
      try {
        if (table === undefined || /^-[AI]/m.test(rest)) throw new Error('only they can add rules');
        await kernel.removeNftChains(family, table, { rules, emptied: named(':'), deleted: named('-X ') });
      } catch (error) {
        fail(error);
      }
    },
  };
}

function fail(error: unknown): never {
  const what = 'what iptables-nft has written cannot be removed without its programs, which are not on PATH';
  throw new IptablesError('failed', `${what}: ${messageOf(error)}`);
}
