import type { Cidr } from '../../model/address.ts';
import type { NodeFacts, Problem } from '../../model/capture.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import type { Claim } from '../claims.ts';
import type { BackEnd, BackEndOptions } from '../method.ts';
import { rulePartsOf, unassignedSpecs } from './claim-rules.ts';
import type { Iptables, Table } from './iptables.ts';
import { RuleBook } from './rule-trees.ts';
import { TableSync } from './table-sync.ts';

interface IptablesBackEndOptions extends BackEndOptions {
  readonly iptables: Iptables;
  readonly clock: Clock;
  readonly log: Log;
}

/** Claims as rules of iptables. */
export class IptablesBackEnd implements BackEnd {
  readonly #options: IptablesBackEndOptions;
  /** filter first: it must already accept packets that NAT sends to a local port. */
  readonly #tables: readonly (readonly [Table, TableSync])[];
  /** The last generation with intact rules. */
  #intactGeneration: string | undefined;
  #rules: RuleBook | undefined;
  #node: NodeFacts | undefined;
  #unassigned: readonly Cidr[] = [];

  constructor(options: IptablesBackEndOptions) {
    this.#options = options;
    const { ports, ...rest } = options;
    this.#tables = [
      ['filter', new TableSync({ ...rest, table: 'filter' })],
      ['nat', new TableSync({ ...rest, table: 'nat', ports })],
    ];
  }

  begin(node: NodeFacts): void {
    this.#node = node;
    this.#rules = new RuleBook(node);
  }

  dropUnassigned(blocks: readonly Cidr[]): void {
    this.#unassigned = blocks;
  }

  replace(before: Claim | undefined, after: Claim | undefined): void {
    this.#rules?.replace(before, after);
  }

  async write({ verify }: { readonly verify: boolean }): Promise<{ readonly wereMissing: boolean }> {
    const rules = this.#rules;
    if (rules === undefined || this.#node === undefined) return { wereMissing: false };
    const unassigned = unassignedSpecs(this.#unassigned, rulePartsOf(this.#node));
    for (const [table, sync] of this.#tables) if (table === 'nat') sync.dropUnassigned(unassigned);
    for (const [table, sync] of this.#tables) await sync.sync(rules.trees(table), { verify });
    return { wereMissing: this.#tables.some(([, { hasRepaired }]) => hasRepaired) };
  }

  /**
   * Whether the jumps to our chains and the root chains are intact. Cheap, however many Services there are: starts no
   * program while no rule changes. A verification finds what it misses. Rejects with an `IptablesError`.
   */
  async isIntact(): Promise<boolean> {
    const { iptables, family } = this.#options;
    // Before the look, so that the next one notices a change during this one.
    const generation = iptables.generation(family);
    if (generation !== undefined && generation === this.#intactGeneration) return true;
    for (const [, sync] of this.#tables) {
      if (!(await sync.isIntact())) return false;
    }
    this.#intactGeneration = generation;
    return true;
  }

  problems(): readonly Problem[] {
    const unsafe = (this.#rules?.unsafe() ?? []).map(({ rule: { chain, spec, owner }, reason }) => ({
      key: `${chain} ${spec}`,
      svc: owner,
      message: `A rule is left out because ${reason}`,
      fields: { chain },
    }));
    return [...unsafe, ...this.#tables.flatMap(([, sync]) => sync.problems())];
  }
}
