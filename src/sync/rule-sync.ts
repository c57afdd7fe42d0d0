import { isDeepStrictEqual } from 'node:util';
import type { IpFamily } from '../model/address.ts';
import type { Iptables, Table } from '../model/iptables.ts';
import type { SyncMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import type { Destination, ProxiedProtocol } from '../model/service-port.ts';
import { type InstalledPort, installedHolders, installedPorts } from '../rules/local-ports.ts';
import type { PortHistory } from '../rules/port-history.ts';
import type { Portal, PortalDelta } from '../rules/portal.ts';
import { type PortalConflict, RuleSet, treesOf } from '../rules/rule-set.ts';
import { claimName, type NodeFacts } from '../rules/service-rules.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { ChangedReports, readTable, TableSync } from './table-sync.ts';

interface RuleSyncOptions {
  readonly iptables: Iptables;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  readonly family: IpFamily;
  readonly history: PortHistory;
  /** As in `DataPlaneOptions`. */
  readonly connectionMark?: number | undefined;
  /** Called before every sync, because the node's address may change. `undefined`: the last facts stay. */
  readonly node: () => NodeFacts | undefined;
}

/** Installs the rules of the portals. Work is in proportion to the change. */
export class RuleSync {
  readonly #options: RuleSyncOptions;
  readonly #reports: ChangedReports;
  /** filter first: it must already accept packets that NAT sends to a local port. */
  readonly #tables: readonly (readonly [Table, TableSync])[];
  /** The last generation with intact rules. */
  #intactGeneration: string | undefined;
  #rules: { readonly node: NodeFacts; readonly rules: RuleSet } | undefined;
  /** The holders in the rules of a previous run, until the first sync. */
  #found: ReadonlyMap<string, ServicePortName> = new Map();

  constructor(options: RuleSyncOptions) {
    this.#options = options;
    this.#reports = new ChangedReports(options.log, options.clock);
    const { history, ...rest } = options;
    const shared = { ...rest, reports: this.#reports };
    this.#tables = [
      ['filter', new TableSync({ ...shared, table: 'filter' })],
      ['nat', new TableSync({ ...shared, table: 'nat', history })],
    ];
  }

  get portals(): Iterable<Portal> {
    return this.#options.history.portals;
  }

  /** The next {@link sync} installs them. */
  apply({ upserted, removed }: PortalDelta): void {
    const { clock, history } = this.#options;
    const now = clock.wallNow();
    const rules = (this.#rules ?? this.#currentRules())?.rules;
    for (const name of removed) {
      history.remove(name, now);
      rules?.remove(name);
    }
    for (const portal of upserted) {
      history.serve(portal, now);
      rules?.set(portal);
    }
  }

  /**
   * Installs the rules for all portals and removes all other rules of ours. With `verify` it reads the kernel's rules
   * first, and retries rules that the kernel refused. When it rejects, the next sync does the rest. `wereMissing`: the
   * kernel's rules were not those of the last sync.
   */
  async sync({ verify }: { readonly verify: boolean }): Promise<{ readonly wereMissing: boolean }> {
    const book = this.#currentRules();
    if (book === undefined) {
      throw new Error(`this node has no ${this.#options.family} address to lead rules to`);
    }
    this.#reportLeftOut(book.rules);
    // A snapshot: portals that are applied meanwhile wait for the next sync, in all tables.
    const trees = book.rules.trees();
    for (const [table, sync] of this.#tables) await sync.sync(treesOf(trees, table), { verify });
    book.rules.settle();
    this.#found = new Map();
    return { wereMissing: this.#tables.some(([, { hasRepaired }]) => hasRepaired) };
  }

  /**
   * Whether the jumps to our chains and the root chains are intact. Cheap, however many Services there are: starts no
   * program while no rule changes. A sync with `verify` finds what it misses. Rejects with an `IptablesError`.
   */
  async canary(): Promise<boolean> {
    const { iptables, family } = this.#options;
    // Before the look, so that the next one notices a change during this one.
    const generation = iptables.generation(family);
    if (generation !== undefined && generation === this.#intactGeneration) return true;
    for (const [, sync] of this.#tables) {
      if (!(await sync.isIntact({ rare: generation !== undefined }))) return false;
    }
    this.#intactGeneration = generation;
    return true;
  }

  /** Whether the installed rules route this destination to that Service port. */
  holds(name: ServicePortName, to: Pick<Destination, 'address' | 'port'>, protocol: ProxiedProtocol): boolean {
    return this.#holderOf(claimName(to, protocol)) === name;
  }

  /** What this Service port claims and another has. */
  conflictsOf(name: ServicePortName): readonly PortalConflict[] {
    return this.#rules?.rules.conflictsOf(name) ?? [];
  }

  /**
   * The local ports that rules in the kernel use or used recently. A Service port that has an address or a NodePort
   * there keeps it. Rejects with an `IptablesError`.
   */
  async installedPorts(): Promise<readonly InstalledPort[]> {
    const { iptables, family, clock } = this.#options;
    const nat = await readTable(clock, 'nat', await iptables.save(family, 'nat'));
    this.#found = installedHolders(nat);
    return installedPorts(nat, clock.wallNow());
  }

  #holderOf(what: string): ServicePortName | undefined {
    return this.#rules === undefined ? this.#found.get(what) : this.#rules.rules.holderOf(what);
  }

  /** Makes new rules when the node has changed; `undefined` before its address is known. */
  #currentRules() {
    const node = this.#options.node();
    if (node !== undefined && !isDeepStrictEqual(node, this.#rules?.node)) {
      const [before, found] = [this.#rules?.rules, this.#found];
      const holderOf = (what: string) => (before === undefined ? found.get(what) : before.holderOf(what));
      this.#rules = { node, rules: new RuleSet(node, this.portals, holderOf) };
    }
    return this.#rules;
  }

  #reportLeftOut(book: RuleSet): void {
    const lines = [
      ...book.conflicts().map(({ owner, holder, what }) => ({
        key: `${owner} ${holder} ${what}`,
        message: 'Two Service ports claim the same address; one of them goes without it',
        svc: owner,
        fields: { holder, what },
      })),
      ...book.unsafe().map(({ rule, reason }) => ({
        key: `${rule.chain} ${rule.spec}`,
        message: `A rule is left out because ${reason}`,
        svc: rule.owner,
        fields: { chain: rule.chain },
      })),
    ];
    this.#reports.report('left out', lines);
  }
}
