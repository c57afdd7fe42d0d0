import { readFile } from 'node:fs/promises';
import { type Iptables, IptablesError, type Table } from '../contracts/iptables.ts';
import type { Log } from '../contracts/log.ts';
import type { IpFamily } from '../model/address.ts';
import type { Exec } from './exec.ts';
import { failureOf } from './failure.ts';
import { detectTools, type Flavour, findTools, programName, type Tools } from './flavour.ts';

export interface IptablesOptions {
  readonly flavour: Flavour | 'auto';
  readonly exec: Exec;
  readonly log: Log;
}

/**
 * Seconds that a restore waits for the xtables lock, upstream's figure. Without it the legacy tools wait for ever; the
 * nft ones accept it and need no lock.
 */
const LOCK_WAIT_S = '5';

/** What the legacy tools say of a chain that is not there, and what the nft ones say of it. */
const NO_CHAIN = /No chain\/target\/match by that name|chain `[^']*' in table `[^']*' is incompatible/;

/** Rejects with {@link IptablesError} `missing` when the tools of that flavour, or of any, are not installed. */
export async function createIptables({ flavour, exec, log }: IptablesOptions): Promise<Iptables> {
  const tools = flavour === 'auto' ? await detectTools(exec) : await findTools(flavour, exec);
  if (tools === undefined) {
    const wanted = flavour === 'auto' ? 'iptables-restore' : `iptables-${flavour}-restore`;
    throw new IptablesError('missing', `${wanted} is not on PATH: install Debian's package "iptables"`);
  }
  log.v(1)?.info(`Rules go through the ${tools.flavour} flavour of iptables`);
  return iptablesOf(tools, exec);
}

function iptablesOf({ flavour, infix }: Tools, exec: Exec): Iptables {
  async function run(family: IpFamily, verb: 'save' | 'restore', args: readonly string[], input = ''): Promise<string> {
    const program = programName(family, infix, verb);
    const result = await exec({ program, args, input });
    const failure = failureOf(program, result);
    if (failure !== undefined) throw failure;
    return result.outcome === 'exited' ? result.stdout : '';
  }

  return {
    flavour,
    async save(family, table) {
      if (flavour === 'legacy' && (await isAbsentLegacyTable(family, table))) return '';
      return run(family, 'save', ['-t', table]);
    },
    async list(family, table, chain) {
      if (flavour === 'legacy' && (await isAbsentLegacyTable(family, table))) return '';
      const program = programName(family, infix);
      const result = await exec({ program, args: ['-w', LOCK_WAIT_S, '-t', table, '-S', chain] });
      if (result.outcome === 'exited' && NO_CHAIN.test(result.stderr)) return '';
      const failure = failureOf(program, result);
      if (failure !== undefined) throw failure;
      return result.outcome === 'exited' ? result.stdout : '';
    },
    async restore(family, text) {
      await run(family, 'restore', ['-w', LOCK_WAIT_S, '--noflush'], text);
    },
  };
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
