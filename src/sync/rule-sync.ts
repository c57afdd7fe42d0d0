import { type Iptables, IptablesError, type Table } from '../contracts/iptables.ts';
import type { Log } from '../contracts/log.ts';
import type { SyncMetrics } from '../contracts/metrics.ts';
import type { Address, IpFamily } from '../model/address.ts';
import type { Cidr } from '../model/cidr.ts';
import type { Portal } from '../rules/claims.ts';
import { findRefused } from '../rules/find-refused.ts';
import { planTable } from '../rules/plan.ts';
import { probeCleanupText, probeText } from '../rules/probe.ts';
import { type RenderedPortals, renderPortals } from '../rules/render.ts';
import type { Rule } from '../rules/rule.ts';
import type { NodeFacts } from '../rules/steering.ts';
import { ChangedReports } from './changed-reports.ts';

export interface RuleSyncOptions {
  readonly iptables: Iptables;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  readonly family: IpFamily;
  readonly bindAddress: Address;
  readonly nodePortCidrs: readonly Cidr[];
  /** Asked before every sync, as a node's address may change; the last one known is kept when there is none. */
  readonly hostAddress: () => Address | undefined;
}

/**
 * The filter table first: a packet that NAT sends to a local port must already be let in.
 */
const TABLES: readonly Table[] = ['filter', 'nat'];

/** Brings the kernel's rules in line with the portals: plan, and apply where something differs. */
export class RuleSync {
  readonly #options: RuleSyncOptions;
  readonly #reports: ChangedReports;
  #hostAddress: Address | undefined;
  /** The rules of each table that the last successful sync wanted, as one text. */
  readonly #installed = new Map<Table, string>();
  /** `table chain spec` of rules that the kernel does not take. */
  readonly #refused = new Set<string>();

  constructor(options: RuleSyncOptions) {
    this.#options = options;
    this.#reports = new ChangedReports(options.log);
  }

  /**
   * Installs the rules for `portals` and takes all others of ours out. With `verify` it looks at the kernel even if
   * nothing changed on our side, and offers rules again that the kernel refused. Rejects with {@link IptablesError};
   * what was installed before then stands, table by table.
   */
  async sync(portals: readonly Portal[], { verify }: { readonly verify: boolean }): Promise<void> {
    const rendered = renderPortals(portals, this.#nodeFacts());
    this.#reportLeftOut(rendered);
    if (verify) this.#refused.clear();
    for (const table of TABLES) {
      const rules = rendered.rules.filter((rule) => rule.table === table);
      const wanted = rules.map(lineOf).join('\n');
      if (!verify && this.#installed.get(table) === wanted) continue;
      this.#installed.delete(table);
      await this.#syncTable(table, rules);
      this.#installed.set(table, wanted);
    }
  }

  async #syncTable(table: Table, rules: readonly Rule[]): Promise<void> {
    const { iptables, family } = this.#options;
    const dump = await iptables.save(family, table);
    const accepted = rules.filter((rule) => !this.#refused.has(lineOf(rule)));
    try {
      await this.#restore(planTable({ table, dump, rules: accepted }));
      if (accepted.length === rules.length) this.#reports.report(`refused ${table}`, []);
    } catch (error) {
      if (!(error instanceof IptablesError && error.code === 'refused')) throw error;
      const refused = await this.#findRefused(table, accepted);
      // The kernel takes every rule by itself, so it is the jumps or the table that it does not like.
      if (refused.length === 0) throw error;
      for (const rule of refused) this.#refused.add(lineOf(rule));
      this.#reportRefused(table, refused, error);
      const rest = accepted.filter((rule) => !this.#refused.has(lineOf(rule)));
      await this.#restore(planTable({ table, dump, rules: rest }));
    }
  }

  async #restore(text: string | undefined): Promise<void> {
    if (text === undefined) return;
    const { iptables, family, metrics, log } = this.#options;
    log.v(5)?.info('Restoring iptables rules', { text });
    try {
      await iptables.restore(family, text);
    } catch (error) {
      metrics.restoreFailed();
      throw error;
    }
  }

  async #findRefused(table: Table, rules: readonly Rule[]): Promise<readonly Rule[]> {
    const { iptables, family } = this.#options;
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
      return await findRefused({ rules, accepts });
    } finally {
      await iptables.restore(family, probeCleanupText(table));
    }
  }

  #nodeFacts(): NodeFacts {
    const { family, bindAddress, nodePortCidrs, hostAddress } = this.#options;
    this.#hostAddress = hostAddress() ?? this.#hostAddress;
    if (this.#hostAddress === undefined) throw new Error(`this node has no ${family} address to lead host rules to`);
    return { family, bindAddress, nodePortCidrs, hostAddress: this.#hostAddress };
  }

  #reportLeftOut({ conflicts, unsafe }: RenderedPortals): void {
    const lines = [
      ...conflicts.map(({ owner, holder, what }) => ({
        key: `${owner} ${holder} ${what}`,
        message: 'Two Service ports claim the same address; one of them goes without it',
        fields: { svc: owner, holder, what },
      })),
      ...unsafe.map(({ rule, reason }) => ({
        key: lineOf(rule),
        message: `A rule is left out because ${reason}`,
        fields: { svc: rule.owner, chain: rule.chain },
      })),
    ];
    this.#reports.report('left out', lines);
  }

  #reportRefused(table: Table, refused: readonly Rule[], error: IptablesError): void {
    const lines = refused.map((rule) => ({
      key: lineOf(rule),
      message: 'The kernel refuses a rule; it is left out, all others are installed',
      fields: { svc: rule.owner, table, chain: rule.chain, rule: rule.spec, err: error.message },
    }));
    this.#reports.report(`refused ${table}`, lines);
  }
}

function lineOf(rule: Rule): string {
  return `${rule.chain} ${rule.spec}`;
}
