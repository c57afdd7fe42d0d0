import { isKubeProxys, isOurs } from '../../capture/iptables/chains.ts';
import { type Iptables, IptablesError } from '../../capture/iptables/iptables.ts';
import { messageOf } from '../../util/text.ts';
import { type Flavour, hasLegacyTable } from './flavour.ts';
import { deletions, type KernelTables, loadKernelTables, readMixedTable } from './mixed-table.ts';

/**
 * What iptables of this flavour has written, where its programs are gone. What the rules say cannot be read, and none
 * can be added. Of nft it is enough to find our chains and to remove them; legacy ones are only found. `undefined`
 * where the kernel has no such tables.
 */
export async function iptablesWithoutPrograms(
  flavour: Flavour,
  tables: Promise<KernelTables | undefined> = loadKernelTables(),
): Promise<Iptables | undefined> {
  const kernel = await tables;
  if (kernel === undefined) return undefined;
  if (flavour === 'legacy') return finding(kernel);
  return hasNfTables(kernel) ? removing(kernel) : undefined;
}

function finding(kernel: KernelTables): Iptables {
  return {
    flavour: 'legacy',
    canRemove: false,
    async save(family, table) {
      if (!(await hasLegacyTable(family, table))) return '';
      const heads = kernel.legacyChains(family, table).map((name) => `:${name} - [0:0]\n`);
      return `*${table}\n${heads.join('')}COMMIT\n`;
    },
    list: async () => '',
    generation: () => undefined,

    async restore() {
      const cure = 'install them and run --cleanup, or restart the node';
      throw new IptablesError('failed', `only the programs of iptables-legacy can remove it: ${cure}`);
    },
  };
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
    canRemove: true,
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
