import { isDeepStrictEqual } from 'node:util';
import type { IpFamily } from '../model/address.ts';
import type { Iptables, Table } from '../model/iptables.ts';
import type { SyncMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import { type InstalledPort, installedPorts, RetiredPorts } from '../rules/local-ports.ts';
import type { Portal, PortalDelta } from '../rules/portal.ts';
import { RuleSet, treesOf } from '../rules/rule-set.ts';
import type { NodeFacts } from '../rules/service-rules.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { ChangedReports, readTable, TableSync } from './table-sync.ts';

export interface RuleSyncOptions {
  readonly iptables: Iptables;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  readonly family: IpFamily;
  /** That of `DataPlaneOptions`. */
  readonly connectionMark?: number | undefined;
  /**
   * Of the same family. Asked before every sync, as a node's address may change; what was known last is kept when there
   * is none.
   */
  readonly node: () => NodeFacts | undefined;
}

/** Brings the kernel's rules in line with the portals; work is in proportion to what changed. */
export class RuleSync {
  readonly #options: RuleSyncOptions;
  readonly #reports: ChangedReports;
  readonly #portals = new Map<ServicePortName, Portal>();
  readonly #retiredPorts = new RetiredPorts();
  /** The filter table first: a packet that NAT sends to a local port must already be let in. */
  readonly #tables: readonly (readonly [Table, TableSync])[];
  /** At which everything was as it was installed. */
  #intactGeneration: string | undefined;
  /** The rules of all portals, for the node as it was when it was made. */
  #book: { readonly node: NodeFacts; readonly rules: RuleSet } | undefined;

  constructor(options: RuleSyncOptions) {
    this.#options = options;
    this.#reports = new ChangedReports(options.log);
    this.#tables = [
      ['filter', new TableSync({ ...options, table: 'filter', reports: this.#reports })],
      ['nat', new TableSync({ ...options, table: 'nat', reports: this.#reports, retired: this.#retiredPorts })],
    ];
  }

  /** Takes note of changed portals; the next {@link sync} installs them. */
  apply({ upserted, removed }: PortalDelta): void {
    const now = this.#options.clock.wallNow();
    const rules = (this.#book ?? this.#openBook())?.rules;
    for (const name of removed) {
      this.#portals.delete(name);
      this.#retiredPorts.remove(name, now);
      rules?.remove(name);
    }
    for (const portal of upserted) {
      this.#portals.set(portal.servicePort.name, portal);
      this.#retiredPorts.serve(portal, now);
      rules?.set(portal);
    }
  }

  /**
   * Installs the rules for all portals and takes all others of ours out. With `verify` it reads the kernel's rules even
   * if it thinks to know them, and offers rules again that the kernel refused. Rejects with an `IptablesError`; what
   * was installed before then stands, table by table, and the next sync does all that this one did not.
   */
  async sync({ verify }: { readonly verify: boolean }): Promise<void> {
    const book = this.#openBook();
    if (book === undefined) {
      throw new Error(`this node has no ${this.#options.family} address to lead rules to`);
    }
    this.#reportLeftOut(book.rules);
    // As they are now: what is applied while this goes on comes into the next sync, in all tables.
    const trees = book.rules.trees();
    for (const [table, sync] of this.#tables) await sync.sync(treesOf(trees, table), { verify });
  }

  /**
   * Whether the jumps to our chains, and the root chains, are as they were installed. While nothing changes, by us or by
   * others, it starts no program, and it is cheap however many Services there are, so it can be asked every other second.
   * What it does not see, a sync with `verify` does. Rejects with an `IptablesError`.
   */
  async canary(): Promise<boolean> {
    const { iptables, family } = this.#options;
    // Asked before a closer look: what changes during that is looked at the next time.
    const generation = iptables.generation(family);
    if (generation !== undefined && generation === this.#intactGeneration) return true;
    for (const [, sync] of this.#tables) {
      if (!(await sync.isIntact({ rare: generation !== undefined }))) return false;
    }
    this.#intactGeneration = generation;
    return true;
  }

  /**
   * The local ports that rules in the kernel lead to now, and those that have done so of late. Rejects with an
   * `IptablesError`.
   */
  async installedPorts(): Promise<readonly InstalledPort[]> {
    const { iptables, family, clock } = this.#options;
    const nat = await readTable(clock, 'nat', await iptables.save(family, 'nat'));
    return installedPorts(nat, clock.wallNow());
  }

  /** Starts a new book when the node is another one; `undefined` while its address has never been known. */
  #openBook() {
    const node = this.#options.node();
    if (node !== undefined && !isDeepStrictEqual(node, this.#book?.node)) {
      this.#book = { node, rules: new RuleSet(node, this.#portals.values()) };
    }
    return this.#book;
  }

  #reportLeftOut(book: RuleSet): void {
    const lines = [
      ...book.conflicts().map(({ owner, holder, what }) => ({
        key: `${owner} ${holder} ${what}`,
        message: 'Two Service ports claim the same address; one of them goes without it',
        fields: { svc: owner, holder, what },
      })),
      ...book.unsafe().map(({ rule, reason }) => ({
        key: `${rule.chain} ${rule.spec}`,
        message: `A rule is left out because ${reason}`,
        fields: { svc: rule.owner, chain: rule.chain },
      })),
    ];
    this.#reports.report('left out', lines);
  }
}
