import { readFile } from 'node:fs/promises';
import type { IpFamily } from '../../model/address.ts';
import { type Iptables, IptablesError, type Table } from '../../model/iptables.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import type { Exec } from './exec.ts';
import { failureOf } from './failure.ts';
import { detectTools, type Flavour, findTools, isIncompatible, programName, type Tools } from './flavour.ts';
import { deletions, type KernelTables, readMixedTable } from './mixed-table.ts';

export interface IptablesOptions {
  readonly flavour: Flavour | 'auto';
  readonly exec: Exec;
  readonly log: Log;
  /** What asks the kernel without a program, where system calls can be made; another one only in tests. */
  readonly kernel?: Promise<KernelTables | undefined>;
}

/**
 * Seconds that a restore waits for the xtables lock, upstream's figure. Without it the legacy tools wait for ever; the
 * nft ones accept it and need no lock.
 */
const LOCK_WAIT_S = '5';

/** Of a chain that is not there. */
const NO_CHAIN = /No chain\/target\/match by that name/;

/** The nft tools before 1.8.11 say this of a chain that is not there, too. */
const INCOMPATIBLE = /(?:chain|table) `[^']*'.* is incompatible/;

/** Rejects with {@link IptablesError} `missing` when the tools of that flavour, or of any, are not installed. */
export async function createIptables({
  flavour,
  exec,
  log,
  kernel = loadKernelTables(),
}: IptablesOptions): Promise<Iptables> {
  const tools = flavour === 'auto' ? await detectTools(exec) : await findTools(flavour, exec);
  if (tools === undefined) {
    const wanted = flavour === 'auto' ? 'iptables-restore' : `iptables-${flavour}-restore`;
    throw new IptablesError('missing', `${wanted} is not on PATH: install Debian's package "iptables"`);
  }
  log.v(1)?.info(`Rules go through the ${tools.flavour} flavour of iptables`);
  return iptablesOf(tools, { exec, log, kernel: await kernel });
}

/** `undefined` where system calls cannot be made. */
async function loadKernelTables(): Promise<KernelTables | undefined> {
  try {
    return await import('./kernel-tables.ts');
  } catch {
    return undefined;
  }
}

interface Means {
  readonly exec: Exec;
  readonly log: Log;
  readonly kernel: KernelTables | undefined;
}

function iptablesOf({ flavour, infix }: Tools, { exec, log, kernel }: Means): Iptables {
  const reported = new Set<string>();

  async function run(program: string, args: readonly string[], input = ''): Promise<string> {
    const result = await exec({ program, args, input });
    const failure = failureOf(program, result);
    if (failure !== undefined) throw failure;
    return result.outcome === 'exited' ? result.stdout : '';
  }

  const save = (family: IpFamily, table: Table) => run(programName(family, infix, 'save'), ['-t', table]);

  const restore = (family: IpFamily, text: string) =>
    run(programName(family, infix, 'restore'), ['-w', LOCK_WAIT_S, '--noflush'], text);

  /** Of a table that `iptables-save` does not print. */
  async function readMixed(family: IpFamily, table: Table, only?: string): Promise<string> {
    const name = `${family === 'IPv4' ? 'ip' : 'ip6'} ${table}`;
    const where = { table: name, see: `nft -a list table ${name}` };
    if (kernel === undefined) {
      throw new IptablesError(
        'failed',
        `the table ${name} holds a rule that iptables cannot print; see "${where.see}", and move it to a table of its own`,
      );
    }
    const text = await readMixedTable({
      ...{ kernel, family, table, restore: (lines) => restore(family, lines) },
      ...(only !== undefined && { only }),
    });
    if (text !== '' && !reported.has(name)) {
      reported.add(name);
      log.warn(
        'A table holds rules that iptables cannot print; they are left alone, and ours are kept beside them',
        where,
      );
    }
    return text;
  }

  return {
    flavour,
    async save(family, table) {
      if (flavour === 'legacy' && (await isAbsentLegacyTable(family, table))) return '';
      const text = await save(family, table);
      return isIncompatible(text, table) ? readMixed(family, table) : text;
    },
    async list(family, table, chain) {
      if (flavour === 'legacy' && (await isAbsentLegacyTable(family, table))) return '';
      const program = programName(family, infix);
      const result = await exec({ program, args: ['-w', LOCK_WAIT_S, '-t', table, '-S', chain] });
      if (result.outcome === 'exited' && NO_CHAIN.test(result.stderr)) return '';
      if (result.outcome === 'exited' && INCOMPATIBLE.test(result.stderr)) {
        const mayBeThere = kernel !== undefined || isIncompatible(await save(family, table), table);
        return mayBeThere ? readMixed(family, table, chain) : '';
      }
      const failure = failureOf(program, result);
      if (failure !== undefined) throw failure;
      return result.outcome === 'exited' ? result.stdout : '';
    },
    async restore(family, text) {
      const { rules, rest } = deletions(text);
      if (rules.length > 0) deleteByHandle(family, /^\*(\S+)/.exec(text)?.[1] ?? '', rules);
      await restore(family, rest);
    },
    generation(family) {
      try {
        if (flavour === 'nft') return kernel?.nftGeneration().toString();
        return kernel?.legacyGeneration(family, ['nat', 'filter']);
      } catch {
        // Such as a table that another program has just changed, or a kernel that does not know the question.
        return undefined;
      }
    },
  };

  function deleteByHandle(...[family, table, rules]: Parameters<KernelTables['deleteNftRules']>): void {
    try {
      kernel?.deleteNftRules(family, table, rules);
    } catch (error) {
      throw new IptablesError('failed', `cannot delete rules of table ${table}: ${messageOf(error)}`);
    }
  }
}

/**
 * Looking at a legacy table creates it, hooks included, which costs every packet of a node that otherwise uses nft;
 * `--cleanup` looks at all of them.
 */
async function isAbsentLegacyTable(family: IpFamily, table: Table): Promise<boolean> {
  try {
    const names = await readFile(`/proc/net/${family === 'IPv4' ? 'ip' : 'ip6'}_tables_names`, 'latin1');
    return !names.split('\n').includes(table);
  } catch (error) {
    // Not there: the kernel has no legacy tables at all. Not readable: the tool will say so better.
    return (error as NodeJS.ErrnoException).code === 'ENOENT';
  }
}
