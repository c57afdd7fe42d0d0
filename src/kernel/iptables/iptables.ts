import { type Iptables, IptablesError, type Table } from '../../capture/iptables/iptables.ts';
import type { IpFamily } from '../../model/address.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import type { Exec, ExecResult } from './exec.ts';
import {
  FLAVOURS,
  type Flavour,
  hasLegacyTable,
  type InstalledPrograms,
  isIncompatible,
  programName,
  type Tools,
} from './flavour.ts';
import { deletions, type KernelTables, loadKernelTables, readMixedTable } from './mixed-table.ts';
import { iptablesWithoutPrograms } from './without-programs.ts';

/**
 * Seconds that a program waits for the xtables lock, as upstream. Without a limit the legacy tools wait for ever; the
 * nft tools accept the option and need no lock.
 */
const LOCK_WAIT_S = '5';

/** The chain does not exist. */
const NO_CHAIN = /No chain\/target\/match by that name/;

/** Before 1.8.11, the nft tools print this for a chain that does not exist, too. */
const INCOMPATIBLE = /(?:chain|table) `[^']*'.* is incompatible/;

interface IptablesOptions {
  readonly exec: Exec;
  readonly log: Log;
  /** Queries the kernel without a program. `undefined` where system calls do not work, and in tests. */
  readonly kernel?: Promise<KernelTables | undefined>;
}

/** Works with these tools. */
export async function createIptables(
  tools: Tools,
  { exec, log, kernel = loadKernelTables() }: IptablesOptions,
): Promise<Iptables> {
  return new IptablesTools(tools, exec, log, await kernel);
}

/** The tools to use. Rejects with {@link IptablesError} `missing` when none of the flavour are installed. */
export async function neededTools(flavour: Flavour | 'auto', programs: InstalledPrograms): Promise<Tools> {
  const tools = await programs.choose(flavour);
  if (tools !== undefined) return tools;
  const wanted = flavour === 'auto' ? 'iptables-restore' : `iptables-${flavour}-restore`;
  throw new IptablesError('missing', `${wanted} is not on PATH: install Debian's package "iptables"`);
}

/** All that may have rules here, in each flavour, also where its programs have been removed since. */
export async function everyIptables(
  programs: InstalledPrograms,
  options: IptablesOptions,
): Promise<readonly Iptables[]> {
  const found = await Promise.all(
    FLAVOURS.map(async (flavour) => {
      const tools = await programs.find(flavour);
      return tools === undefined ? iptablesWithoutPrograms(flavour, options.kernel) : createIptables(tools, options);
    }),
  );
  return found.filter((each) => each !== undefined);
}

class IptablesTools implements Iptables {
  readonly flavour: Flavour;
  readonly canRemove = true;
  readonly #infix: Tools['infix'];
  readonly #exec: Exec;
  readonly #log: Log;
  readonly #kernel: KernelTables | undefined;
  /** The tables whose foreign rules have been logged. */
  readonly #reported = new Set<string>();

  constructor({ flavour, infix }: Tools, exec: Exec, log: Log, kernel: KernelTables | undefined) {
    this.flavour = flavour;
    this.#infix = infix;
    this.#exec = exec;
    this.#log = log;
    this.#kernel = kernel;
  }

  async save(family: IpFamily, table: Table): Promise<string> {
    if (await this.#isAbsent(family, table)) return '';
    const text = await this.#run(programName(family, this.#infix, 'save'), ['-t', table]);
    return isIncompatible(text, table) ? this.#readMixed(family, table) : text;
  }

  async list(family: IpFamily, table: Table, chain: string): Promise<string> {
    if (await this.#isAbsent(family, table)) return '';
    const program = programName(family, this.#infix);
    const result = await this.#exec({ program, args: ['-w', LOCK_WAIT_S, '-t', table, '-S', chain] });
    if (result.outcome === 'exited' && NO_CHAIN.test(result.stderr)) return '';
    if (result.outcome === 'exited' && INCOMPATIBLE.test(result.stderr)) {
      if (this.#kernel !== undefined) return this.#readMixed(family, table, chain);
      const text = await this.#run(programName(family, this.#infix, 'save'), ['-t', table]);
      return isIncompatible(text, table) ? this.#readMixed(family, table, chain) : '';
    }
    return stdoutOf(program, result);
  }

  async restore(family: IpFamily, text: string): Promise<void> {
    const { rules, rest } = deletions(text);
    const table = /^\*(\S+)/.exec(text)?.[1] ?? '';
    try {
      if (rules.length > 0) this.#kernel?.deleteNftRules(family, table, rules);
    } catch (error) {
      throw new IptablesError('failed', `cannot delete rules of table ${table}: ${messageOf(error)}`);
    }
    await this.#restore(family, rest);
  }

  generation(family: IpFamily): string | undefined {
    try {
      if (this.flavour === 'nft') return this.#kernel?.nftGeneration().toString();
      return this.#kernel?.legacyGeneration(family, ['nat', 'filter']);
    } catch {
      // For example, another program has just changed a table, or the kernel does not support the query.
      return undefined;
    }
  }

  async #run(program: string, args: readonly string[]): Promise<string> {
    return stdoutOf(program, await this.#exec({ program, args }));
  }

  async #restore(family: IpFamily, input: string): Promise<string> {
    const program = programName(family, this.#infix, 'restore');
    const args = ['-w', LOCK_WAIT_S, '--noflush'];
    return stdoutOf(program, await this.#exec({ program, args, input }));
  }

  /** Reads a table that `iptables-save` does not print. */
  async #readMixed(family: IpFamily, table: Table, only?: string): Promise<string> {
    const kernel = this.#kernel;
    const name = `${family === 'IPv4' ? 'ip' : 'ip6'} ${table}`;
    const see = `nft -a list table ${name}`;
    if (kernel === undefined) {
      const why = `the table ${name} holds a rule that iptables cannot print; see "${see}"`;
      throw new IptablesError('failed', `${why}, and move it to a table of its own`);
    }
    const restore = (lines: string) => this.#restore(family, lines);
    const text = await readMixedTable({ kernel, family, table, restore, ...(only !== undefined && { only }) });
    if (text !== '' && !this.#reported.has(name)) {
      this.#reported.add(name);
      this.#log.warn(
        'A table holds rules that iptables cannot print; they are left alone, and ours are kept beside them',
        { table: name, see },
      );
    }
    return text;
  }

  /** A table with its hooks would cost every packet of a node that otherwise uses nft; `--cleanup` reads all. */
  async #isAbsent(family: IpFamily, table: Table): Promise<boolean> {
    return this.flavour === 'legacy' && !(await hasLegacyTable(family, table));
  }
}

function stdoutOf(program: string, result: ExecResult): string {
  const failure = failureOf(program, result);
  if (failure !== undefined) throw failure;
  return result.outcome === 'exited' ? result.stdout : '';
}

/** "Error occurred at line: 3", "line 3 failed", "line 3: RULE_APPEND failed", "COMMIT expected at line 3". */
const LINE = /\bline:? (\d+)/;

/** The second is printed when a legacy table changed between reading and writing. */
const CONTENTION = /holding the xtables lock|Resource temporarily unavailable/;

/**
 * What the end of a program means; `undefined` when it succeeded. Exit codes alone do not tell: the legacy tools use 4
 * for the xtables lock, while the nft tools also use it for refused rules and for missing privileges.
 */
export function failureOf(program: string, result: ExecResult): IptablesError | undefined {
  switch (result.outcome) {
    case 'missing':
      return new IptablesError('missing', `${program} is not on PATH: install Debian's package "iptables"`);
    case 'timeout':
      return new IptablesError('timeout', `${program} did not end within ${result.timeoutMs} ms and was killed`);
    case 'failed':
      return new IptablesError('failed', `${program} could not be run: ${result.err}`);
    case 'exited':
      return result.code === 0 ? undefined : failureOfExit(program, result.code, result.stderr);
  }
}

function failureOfExit(program: string, code: number | null, stderr: string): IptablesError {
  const said = stderr.replace(/\s+/g, ' ').trim() || 'no message';
  const line = LINE.exec(stderr)?.[1];
  if (CONTENTION.test(stderr)) {
    return new IptablesError('locked', `${program} found the rules locked by another program, try again: ${said}`);
  }
  if (line !== undefined || code === 2) {
    const at = line === undefined ? undefined : Number(line);
    return new IptablesError('refused', `${program} refused the rules: ${said}`, { line: at });
  }
  if (stderr.includes('Permission denied')) {
    return new IptablesError('failed', `${program} needs root or CAP_NET_ADMIN and CAP_NET_RAW: ${said}`);
  }
  if (code === 4) return new IptablesError('locked', `${program} found no resources, try again: ${said}`);
  return new IptablesError('failed', `${program} ended ${code === null ? 'by a signal' : `with ${code}`}: ${said}`);
}
