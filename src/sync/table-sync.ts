import type { IpFamily } from '../model/address.ts';
import { type Iptables, IptablesError, type IptablesErrorCode, type Table } from '../model/iptables.ts';
import type { SyncMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import { type Chain, chainsOf, fixedChains, layoutChange, rootChains } from '../rules/chain-layout.ts';
import { isOurs, JUMPS, RETIRED_CHAIN } from '../rules/chains.ts';
import { type ChainRules, jumpTarget, readDump, rulesOf } from '../rules/dump.ts';
import { type Accepts, findRefused } from '../rules/find-refused.ts';
import { livePorts, retiredPorts } from '../rules/local-ports.ts';
import {
  differingChains,
  hasJumps,
  planChange,
  planTable,
  probeCleanupText,
  probeText,
  type TableChange,
  textOf,
  type WantedChain,
} from '../rules/plan.ts';
import type { PortHistory, RetiredLog } from '../rules/port-history.ts';
import type { Rule } from '../rules/rule.ts';
import type { RuleTrees } from '../rules/rule-set.ts';
import type { Clock } from '../util/clock.ts';
import type { Log, LogFields } from '../util/log.ts';
import { sameList } from '../util/same-list.ts';
import { eachInSlices, inSlices } from '../util/wait.ts';
import { ServiceLog } from './service-log.ts';

interface TableSyncOptions {
  readonly table: Table;
  readonly family: IpFamily;
  readonly connectionMark?: number | undefined;
  readonly iptables: Iptables;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  readonly reports: ChangedReports;
  /** Given for the one table that remembers local ports. */
  readonly history?: PortHistory;
}

interface Installed {
  readonly trees: RuleTrees;
  readonly retired: RetiredLog;
}

/** What reading the kernel's rules, and then writing the difference, may overcome. */
const RECOVERABLE: ReadonlySet<IptablesErrorCode> = new Set(['refused', 'failed']);

/** In rules. Reading the root chains of a smaller table takes some milliseconds. */
const LARGE_TABLE = 2_000;

const NONE_RETIRED: RetiredLog = { specs: [], length: 0 };

/**
 * Writes the wanted trees to one table of the kernel. Changes do not need the kernel's rules; after a failure all rules
 * are read and compared.
 */
export class TableSync {
  readonly #options: TableSyncOptions;
  #installed: Installed | undefined;
  #looks = 0;
  #hasRepaired = false;
  /** How many rules each of our chains has. */
  readonly #sizes = new Map<string, number>();
  /** In the current sync. */
  #written = 0;
  /** The rules that the kernel refuses, by {@link lineOf}. */
  readonly #refused = new Map<string, Refusal>();

  constructor(options: TableSyncOptions) {
    this.#options = options;
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
   * whole table for each chain (27 ms at 20,000 rules), so in a large table it reads built-in chains only. Where looks
   * are not `rare` it reads one of these in turn: a flush takes the jumps from all of them.
   */
  async isIntact({ rare }: { readonly rare: boolean }): Promise<boolean> {
    const installed = this.#installed;
    if (installed === undefined) return true;
    const { table, family } = this.#options;
    const builtIn = [...new Set(JUMPS.filter((jump) => jump.table === table).map((jump) => jump.from))];
    const size = [...installed.trees.values()].reduce((sum, tree) => sum + tree.size, 0);
    const isLarge = size > LARGE_TABLE;
    const turn = isLarge && !rare ? this.#looks++ % builtIn.length : undefined;
    for (const chain of turn === undefined ? builtIn : builtIn.slice(turn, turn + 1)) {
      if (!hasJumps(table, chain, await this.#rulesIn(chain))) return false;
    }
    const always = [...fixedChains(table, family), ...rootChains(installed.trees, this.#options)];
    for (const root of isLarge ? [] : always) {
      if (!sameList(await this.#rulesIn(root.name), this.#wanted(root).specs)) return false;
    }
    return true;
  }

  async #rulesIn(chain: string): Promise<readonly string[]> {
    const { iptables, table, family } = this.#options;
    return [...rulesOf(await iptables.list(family, table, chain), chain)];
  }

  /** Writes the difference. Resolves with whether the kernel accepted it. */
  async #change(installed: Installed, trees: RuleTrees): Promise<boolean> {
    const { table, clock, history, log } = this.#options;
    const retired = history?.log(clock.wallNow()) ?? NONE_RETIRED;
    const { written, deleted } = layoutChange(installed.trees, trees, this.#options);
    const change = { written: written.map((chain) => this.#wanted(chain)), deleted };
    try {
      await this.#restore(planChange(table, withRetired(change, installed.retired, retired)), 'partial');
    } catch (error) {
      if (!(error instanceof IptablesError && RECOVERABLE.has(error.code))) throw error;
      log.v(1)?.info('The kernel did not accept a change of rules; reading all of them', { table, err: error.message });
      return false;
    }
    for (const name of deleted) this.#sizes.delete(name);
    this.#noteSizes(change.written);
    this.#installed = { trees, retired };
    return true;
  }

  async #verify(trees: RuleTrees): Promise<void> {
    const { iptables, table, family, clock, reports } = this.#options;
    const current = await readTable(clock, table, await iptables.save(family, table));
    const chains = [...fixedChains(table, family), ...(await gathered(clock, chainsOf(trees, this.#options)))];
    const retired = this.#retiredGiven(current, chains);
    const plan = () => planTable(table, current, this.#allWanted(chains, retired));
    const first = plan();
    this.#hasRepaired = first !== undefined;
    try {
      await this.#restore(first?.lines, 'full');
      if (this.#refused.size === 0) reports.report(`refused ${table}`, []);
    } catch (error) {
      if (!(error instanceof IptablesError && error.code === 'refused')) throw error;
      const written = new Set(first?.written);
      const suspects = chains.filter(({ name }) => written.has(name)).flatMap((chain) => this.#suspects(chain));
      const refused = await this.#probing((accepts) => findRefused(suspects, accepts));
      // The kernel accepts every rule by itself, so it refuses a jump or the table.
      if (refused.length === 0) throw error;
      this.#refuse(refused, error);
      await this.#restore(plan()?.lines, 'full');
    }
    this.#sizes.clear();
    this.#noteSizes(chains.map((chain) => this.#wanted(chain)));
    this.#installed = { trees, retired };
  }

  #noteSizes(chains: readonly WantedChain[]): void {
    for (const { name, specs } of chains) this.#sizes.set(name, specs.length);
  }

  #reportRules(): void {
    const { table, metrics } = this.#options;
    const jumps = JUMPS.filter((jump) => jump.table === table).length;
    const inChains = [...this.#sizes.values()].reduce((sum, size) => sum + size, 0);
    const total = jumps + inChains + (this.#installed?.retired.length ?? 0);
    metrics.rulesInstalled(table, { total, written: this.#written, leftOut: this.#refused.size });
  }

  /**
   * Also retires ports of rules in the kernel that no longer serve a Service, which went between two runs or before a
   * sync that failed.
   */
  #retiredGiven(current: ChainRules, chains: readonly Chain[]): RetiredLog {
    const { table, clock, history } = this.#options;
    if (history === undefined) return NONE_RETIRED;
    const now = clock.wallNow();
    for (const port of retiredPorts(current.get(RETIRED_CHAIN) ?? [], now)) history.found(port, now);
    const differing = differingChains(table, current, this.#allWanted(chains, NONE_RETIRED));
    for (const port of livePorts(differing.flatMap((chain) => current.get(chain) ?? []))) history.found(port, now);
    return history.compactLog(now);
  }

  #allWanted(chains: readonly Chain[], retired: RetiredLog): readonly WantedChain[] {
    return [...chains.map((chain) => this.#wanted(chain)), ...retiredChain(retired)];
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

  /** Leaves these rules out until the next verification. */
  #refuse(rules: readonly Rule[], { message: err }: IptablesError): void {
    for (const rule of rules) this.#refused.set(lineOf(rule), { rule, err });
    this.#reportRefused();
  }

  #reportRefused(): void {
    const { table, reports } = this.#options;
    const lines = [...this.#refused].map(([key, { rule, err }]) => ({
      key,
      message: 'The kernel refuses a rule; it is left out, all others are installed',
      svc: rule.owner,
      fields: { table, chain: rule.chain, rule: rule.spec, err },
    }));
    reports.report(`refused ${table}`, lines);
  }
}

interface Refusal {
  readonly rule: Rule;
  readonly err: string;
}

/** Expired ports stay until the next verification. */
function withRetired(change: TableChange, before: RetiredLog, after: RetiredLog): TableChange {
  if (before.length === 0 || before.specs !== after.specs) {
    return { ...change, written: [...change.written, ...retiredChain(after)] };
  }
  const specs = after.specs.slice(before.length, after.length);
  return specs.length === 0 ? change : { ...change, appended: [{ name: RETIRED_CHAIN, specs }] };
}

function retiredChain({ specs, length }: RetiredLog): readonly WantedChain[] {
  return length === 0 ? [] : [{ name: RETIRED_CHAIN, specs: specs.slice(0, length) }];
}

/** Identifies a rule in any bucket of its root chain. */
function lineOf(rule: Rule): string {
  return `${rule.chain} ${rule.spec}`;
}

/** `key` identifies the fault. */
interface Report {
  readonly key: string;
  readonly svc?: ServicePortName | undefined;
  readonly message: string;
  readonly fields: LogFields;
}

/** A fault of ten thousand Services must not become ten thousand lines. */
const MAX_LINES = 20;

/** Warns of a lasting fault once, and again only when it comes back. */
export class ChangedReports {
  readonly #log: Log;
  readonly #lines: ServiceLog;
  readonly #known = new Map<string, ReadonlySet<string>>();

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#lines = new ServiceLog(log, clock);
  }

  /** `reports`: all current faults of this `topic`. */
  report(topic: string, reports: readonly Report[]): void {
    const known = this.#known.get(topic);
    const now = new Map(reports.map((report) => [report.key, report]));
    const fresh = [...now].filter(([key]) => !known?.has(key)).map(([, report]) => report);
    for (const { svc, message, fields } of fresh.slice(0, MAX_LINES)) {
      if (svc === undefined) this.#log.warn(message, fields);
      else this.#lines.warn(svc, message, fields);
    }
    if (fresh.length > MAX_LINES)
      this.#log.warn('More of the same kind are not shown', { more: fresh.length - MAX_LINES });
    this.#known.set(topic, new Set(now.keys()));
  }
}

/** The chains of one table in the output of `iptables-save`, read in time slices. */
export async function readTable(clock: Clock, table: Table, dump: string): Promise<ChainRules> {
  const reading = readDump(dump);
  let chains: ChainRules | undefined;
  await inSlices(clock, () => {
    const { done, value } = reading.next();
    if (done) chains = value.get(table);
    return !done;
  });
  return chains ?? new Map();
}

/** All `items`, in time slices: tens of thousands of rules take tens of milliseconds. */
async function gathered<T>(clock: Clock, items: Iterable<T>): Promise<readonly T[]> {
  const all: T[] = [];
  await eachInSlices(clock, items, (item) => all.push(item));
  return all;
}
