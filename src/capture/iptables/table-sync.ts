import type { InstalledPort, Problem } from '../../model/capture.ts';
import type { SyncMetrics } from '../../model/metrics.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { sameList } from '../../util/same-list.ts';
import { eachInSlices, finished, gathered } from '../../util/wait.ts';
import type { RetiredPorts } from '../method.ts';
import { MAX_RETIRED } from '../port-book.ts';
import { type Chain, chainsOf, fixedChains, type LayoutFacts, layoutChange, rootChains } from './chain-layout.ts';
import { isOurs, type Jump, jumpsOf, RETIRED_CHAIN } from './chains.ts';
import { type ChainRules, jumpTarget, readDump, rulesOf } from './dump.ts';
import { type Accepts, findRefused } from './find-refused.ts';
import { livePorts, retiredPorts, retiredSpec } from './installed.ts';
import { type Iptables, IptablesError, type IptablesErrorCode, type Table } from './iptables.ts';
import {
  difference,
  hasJumps,
  planChange,
  planTable,
  probeCleanupText,
  probeText,
  type TableChange,
  textOf,
  type WantedChain,
} from './plan.ts';
import { type Rule, unsafeReason } from './rule.ts';
import type { RuleTrees } from './rule-trees.ts';

interface TableSyncOptions extends LayoutFacts {
  readonly iptables: Iptables;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  /** Given for the one table that remembers local ports. */
  readonly ports?: RetiredPorts;
}

interface Installed {
  readonly trees: RuleTrees;
  readonly retired: RetiredLog;
}

/** The rules of the chain that remembers ports: all that retired up to `serial`, and perhaps some that serve again. */
interface RetiredLog {
  readonly specs: readonly string[];
  readonly serial: number;
  /** How many were appended to the log before; `undefined`: it is another one. */
  readonly appended?: number;
}

/** What reading the kernel's rules, and then writing the difference, may overcome. */
const RECOVERABLE: ReadonlySet<IptablesErrorCode> = new Set(['refused', 'failed']);

/** In rules. Reading the root chains of a smaller table takes some milliseconds. */
const LARGE_TABLE = 2_000;

const NONE_RETIRED: RetiredLog = { specs: [], serial: 0 };

/**
 * Writes the wanted trees to one table of the kernel. Changes do not need the kernel's rules; after a failure all rules
 * are read and compared.
 */
export class TableSync {
  readonly #options: TableSyncOptions;
  #installed: Installed | undefined;
  #hasRepaired = false;
  /** What the chain for unassigned addresses is to have, in the nat table. */
  #unassigned: readonly string[] = [];
  /** How many rules each of our chains has. */
  readonly #sizes = new Map<string, number>();
  /** In the current sync. */
  #written = 0;
  /** The rules that the kernel refuses, by {@link lineOf}. */
  readonly #refused = new Map<string, Refusal>();

  constructor(options: TableSyncOptions) {
    this.#options = options;
  }

  /** The next sync looks at all rules. */
  dropUnassigned(specs: readonly string[]): void {
    if (sameList(specs, this.#unassigned)) return;
    this.#unassigned = specs;
    this.#installed = undefined;
  }

  /** The last sync read the kernel's rules and wrote others, as the first one does. */
  get hasRepaired(): boolean {
    return this.#hasRepaired;
  }

  /** See `RuleSync.sync`. Rejects with {@link IptablesError}. */
  async sync(trees: RuleTrees, { verify }: { readonly verify: boolean }): Promise<void> {
    const installed = this.#installed;
    this.#installed = undefined;
    this.#written = 0;
    this.#hasRepaired = false;
    if (verify || installed === undefined || !(await this.#change(installed, trees))) {
      if (verify) this.#refused.clear();
      await this.#verify(trees);
    }
    this.#reportRules();
  }

  /**
   * Whether the jumps and the root chains are there; true where nothing has been installed. The legacy tools copy the
   * whole table for each chain (27 ms at 20,000 rules), so in a large table it reads built-in chains only.
   */
  async isIntact(): Promise<boolean> {
    const installed = this.#installed;
    if (installed === undefined) return true;
    const { table, family } = this.#options;
    const jumps = this.#jumps();
    const builtIn = [...new Set(jumps.map((jump) => jump.from))];
    for (const chain of builtIn) {
      if (!hasJumps(jumps, chain, await this.#rulesIn(chain))) return false;
    }
    const size = [...installed.trees.values()].reduce((sum, tree) => sum + tree.size, 0);
    const always = [...fixedChains(table, family, this.#unassigned), ...rootChains(installed.trees, this.#options)];
    for (const root of size > LARGE_TABLE ? [] : always) {
      if (!sameList(await this.#rulesIn(root.name), this.#wanted(root).specs)) return false;
    }
    return true;
  }

  #jumps(): readonly Jump[] {
    return jumpsOf(this.#options.table, { dropsUnassigned: this.#unassigned.length > 0 });
  }

  async #rulesIn(chain: string): Promise<readonly string[]> {
    const { iptables, table, family } = this.#options;
    return [...rulesOf(await iptables.list(family, table, chain), chain)];
  }

  /** Writes the difference. Resolves with whether the kernel accepted it. */
  async #change(installed: Installed, trees: RuleTrees): Promise<boolean> {
    const { table, clock, log } = this.#options;
    const retired = this.#retiredSince(installed.retired);
    const changes = await gathered(clock, layoutChange(installed.trees, trees, this.#options));
    const written = changes.flatMap((change) => ('written' in change ? [this.#wanted(change.written)] : []));
    const deleted = changes.flatMap((change) => ('deleted' in change ? [change.deleted] : []));
    const change = withRetired({ written, deleted }, installed.retired, retired);
    try {
      await this.#restore(planChange(table, change), 'partial');
    } catch (error) {
      if (!(error instanceof IptablesError && RECOVERABLE.has(error.code))) throw error;
      log.v(1)?.info('The kernel did not accept a change of rules; reading all of them', { table, err: error.message });
      return false;
    }
    for (const name of deleted) this.#sizes.delete(name);
    this.#noteSizes(written);
    this.#installed = { trees, retired };
    return true;
  }

  async #verify(trees: RuleTrees): Promise<void> {
    const { iptables, table, family, clock } = this.#options;
    const current = await readTable(clock, table, await iptables.save(family, table));
    const fixed = fixedChains(table, family, this.#unassigned);
    const chains = [...fixed, ...(await gathered(clock, chainsOf(trees, this.#options)))];
    const retired = await this.#retiredGiven(current, chains);
    const differs = () => this.#difference(current, chains, retired);
    const first = await differs();
    const plan = planTable(table, current, first, this.#jumps());
    this.#hasRepaired = plan !== undefined;
    try {
      await this.#restore(plan, 'full');
    } catch (error) {
      if (!(error instanceof IptablesError && error.code === 'refused')) throw error;
      const written = new Set(first.stale.map(({ name }) => name));
      const suspects = chains.filter(({ name }) => written.has(name)).flatMap((chain) => this.#suspects(chain));
      const refused = await this.#probing((accepts) => findRefused(suspects, accepts));
      // The kernel accepts every rule by itself, so it refuses a jump or the table.
      if (refused.length === 0) throw error;
      for (const rule of refused) this.#refused.set(lineOf(rule), { rule, err: error.message });
      await this.#restore(planTable(table, current, await differs(), this.#jumps()), 'full');
    }
    this.#sizes.clear();
    for (const chain of chains) this.#noteSizes([this.#wanted(chain)]);
    this.#installed = { trees, retired };
  }

  #difference(current: ChainRules, chains: readonly Chain[], retired: RetiredLog) {
    const wanted = function* (this: TableSync) {
      for (const chain of chains) yield this.#wanted(chain);
      yield* retiredChain(retired);
    };
    return finished(this.#options.clock, difference(this.#options.table, current, wanted.call(this)));
  }

  #noteSizes(chains: readonly WantedChain[]): void {
    for (const { name, specs } of chains) this.#sizes.set(name, specs.length);
  }

  #reportRules(): void {
    const { table, metrics } = this.#options;
    const jumps = this.#jumps().length;
    const inChains = [...this.#sizes.values()].reduce((sum, size) => sum + size, 0);
    const total = jumps + inChains + (this.#installed?.retired.specs.length ?? 0);
    metrics.rulesInstalled(table, { total, written: this.#written, leftOut: this.#refused.size });
  }

  /**
   * Also retires ports of rules in the kernel that no longer serve a Service, which went between two runs or before a
   * sync that failed.
   */
  async #retiredGiven(current: ChainRules, chains: readonly Chain[]): Promise<RetiredLog> {
    const { clock, ports } = this.#options;
    if (ports === undefined) return NONE_RETIRED;
    for (const port of retiredPorts(current.get(RETIRED_CHAIN) ?? [], clock.wallNow())) ports.found(port);
    const { stale, unwanted } = await this.#difference(current, chains, NONE_RETIRED);
    await eachInSlices(clock, [...stale.map(({ name }) => name), ...unwanted], (chain) => {
      for (const port of livePorts(current.get(chain) ?? [])) ports.found(port);
    });
    return this.#retiredSince(NONE_RETIRED);
  }

  /** Appends to what is in the chain, until too many of its rules may be of no use. */
  #retiredSince(before: RetiredLog): RetiredLog {
    const fresh = this.#options.ports?.retiredAfter(before.serial) ?? [];
    const serial = fresh.at(-1)?.serial;
    if (serial === undefined) return before;
    const appended = fresh.flatMap(({ port, at }) => safeSpec(port, at));
    const specs = [...before.specs, ...appended];
    if (specs.length > 2 * MAX_RETIRED) return this.#retiredSince(NONE_RETIRED);
    return before.specs.length === 0 ? { specs, serial } : { specs, serial, appended: appended.length };
  }

  #wanted(chain: Chain): WantedChain {
    return { name: chain.name, specs: [...this.#acceptedRules(chain).map((rule) => rule.spec), ...chain.jumps] };
  }

  #acceptedRules({ rules }: Chain): readonly Rule[] {
    return this.#refused.size === 0 ? rules : rules.filter((rule) => !this.#refused.has(lineOf(rule)));
  }

  async #restore(lines: Iterable<string> | undefined, kind: 'full' | 'partial'): Promise<void> {
    if (lines === undefined) return;
    const { iptables, family, clock, metrics, log } = this.#options;
    const all = await gathered(clock, lines);
    const text = textOf(all);
    log.v(5)?.info('Restoring iptables rules', { text });
    try {
      await iptables.restore(family, text);
    } catch (error) {
      metrics.restoreFailed(kind);
      throw error;
    }
    this.#written += all.filter((line) => /^-[AI] /.test(line)).length;
  }

  /** The rules that may be at fault: a jump of ours is refused where its chain does not exist yet. */
  #suspects(chain: Chain): readonly Rule[] {
    const { table } = this.#options;
    return this.#acceptedRules(chain).filter(({ spec }) => !isOurs(table, jumpTarget(spec) ?? ''));
  }

  async #probing<T>(find: (accepts: Accepts) => Promise<T>): Promise<T> {
    const { iptables, table, family } = this.#options;
    const accepts = async (some: readonly Rule[]) => {
      try {
        await iptables.restore(family, probeText(table, some));
        return true;
      } catch (error) {
        if (error instanceof IptablesError && error.code === 'refused') return false;
        throw error;
      }
    };
    try {
      return await find(accepts);
    } finally {
      await iptables.restore(family, probeCleanupText(table));
    }
  }

  /** Rules that the kernel refuses. They are left out until the next verification. */
  problems(): readonly Problem[] {
    const { table } = this.#options;
    return Array.from(this.#refused.values(), ({ rule: { chain, spec, owner }, err }) => ({
      key: `${table} ${chain} ${spec}`,
      svc: owner,
      message: 'The kernel refuses a rule; it is left out, all others are installed',
      fields: { table, chain, rule: spec, err },
    }));
  }
}

interface Refusal {
  readonly rule: Rule;
  readonly err: string;
}

/** Expired ports stay until the next verification. */
function withRetired(change: TableChange, before: RetiredLog, after: RetiredLog): TableChange {
  if (after === before) return change;
  if (after.appended === undefined) return { ...change, written: [...change.written, ...retiredChain(after)] };
  const specs = after.appended === 0 ? [] : after.specs.slice(-after.appended);
  return { ...change, appended: [{ name: RETIRED_CHAIN, specs }] };
}

function retiredChain({ specs }: RetiredLog): readonly WantedChain[] {
  return specs.length === 0 ? [] : [{ name: RETIRED_CHAIN, specs }];
}

function safeSpec(port: InstalledPort, at: number): readonly string[] {
  const spec = retiredSpec(port, at);
  return unsafeReason(spec) === undefined ? [spec] : [];
}

/** Identifies a rule in any bucket of its root chain. */
function lineOf(rule: Rule): string {
  return `${rule.chain} ${rule.spec}`;
}

/** The chains of one table in the output of `iptables-save`, read in time slices. */
export async function readTable(clock: Clock, table: Table, dump: string): Promise<ChainRules> {
  const tables = await finished(clock, readDump(dump));
  return tables.get(table) ?? new Map();
}
