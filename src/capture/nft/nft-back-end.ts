import { isDeepStrictEqual } from 'node:util';
import type { Cidr, IpFamily } from '../../model/address.ts';
import { CaptureError, type InstalledPort, type NodeFacts, type Problem } from '../../model/capture.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { eachInSlices } from '../../util/wait.ts';
import type { Claim } from '../claims.ts';
import type { BackEnd, BackEndOptions } from '../method.ts';
import { RETIRED_FOR_MS } from '../port-book.ts';
import { commentOf, elementsOf, servedSetOf } from './claim-elements.ts';
import { type Element, keyOf, SET_NAMES, sameElement } from './element.ts';
import type { Firewall } from './firewall.ts';
import type { NftKernel } from './nft-kernel.ts';
import { type Condition, conditionsText, removalText, TABLE, type TableFacts, tableText } from './table.ts';

export interface NftBackEndOptions extends BackEndOptions {
  readonly kernel: NftKernel;
  readonly firewall: Firewall;
  readonly clock: Clock;
  readonly log: Log;
}

/** In one batch. It takes about a millisecond, and other programs wait meanwhile. */
const BATCH = 1_000;

/** Above this many claims a look compares rules only, because reading their elements takes tens of milliseconds. */
const MANY_CLAIMS = 2_000;

/** A retired port that expires sooner counts as gone: the kernel may be first. */
const EXPIRING_MS = 5_000;

/** The table of one family as it was written. */
interface Written {
  readonly facts: TableFacts;
  /** `NftKernel.rules`. */
  readonly rules: ReadonlyMap<string, string>;
}

/**
 * What Service ports claim, as elements of sets and maps. A change is written without reading; after a failure, and
 * when another program may have changed something, everything is read and compared.
 */
export class NftBackEnd implements BackEnd {
  readonly #options: NftBackEndOptions;
  readonly #family: IpFamily;
  #node: NodeFacts | undefined;
  #unassigned: readonly Cidr[] = [];
  #wanted = new Map<string, Claim>();
  /** By `Claim.what`: why a claim is left out. */
  readonly #problems = new Map<string, Problem>();
  /** By `Claim.what`: those that are not what was installed. */
  readonly #changed = new Set<string>();
  /** What the last write has put into the kernel; `undefined` before it, and after a failure. */
  #installed: Map<string, Claim> | undefined;
  #written: Written | undefined;
  #hasWritten = false;
  /** Those in the kernel, by the names of their chains, and how many claims need each. */
  readonly #conditions = new Map<string, UsedCondition>();
  /** Elements of `retired` and when they go, by {@link keyOf}. */
  readonly #retired = new Map<string, number>();
  #retiredSerial = 0;
  #intactGeneration: number | undefined;
  #elementCount = 0;

  constructor(options: NftBackEndOptions) {
    this.#options = options;
    this.#family = options.family;
  }

  /** Of the table in the kernel; `undefined` before it is written. */
  get facts(): TableFacts | undefined {
    return this.#written?.facts;
  }

  conditionOf(chain: string): Condition | undefined {
    return this.#conditions.get(chain)?.condition;
  }

  begin(node: NodeFacts): void {
    this.#node = node;
    for (const what of this.#wanted.keys()) this.#changed.add(what);
    this.#wanted = new Map();
    this.#problems.clear();
  }

  replace(before: Claim | undefined, after: Claim | undefined): void {
    const claim = after ?? before;
    if (claim === undefined) return;
    const { what } = claim;
    const problem = after && problemOf(after);
    if (problem === undefined) this.#problems.delete(what);
    else this.#problems.set(what, problem);
    if (after === undefined || problem !== undefined) this.#wanted.delete(what);
    else this.#wanted.set(what, after);
    this.#changed.add(what);
  }

  dropUnassigned(blocks: readonly Cidr[]): void {
    this.#unassigned = blocks;
  }

  async write({ verify }: { readonly verify: boolean }): Promise<{ readonly wereMissing: boolean }> {
    const { metrics } = this.#options;
    const facts = this.#facts();
    const installed = this.#installed;
    this.#installed = undefined;
    const count = { written: 0 };
    const isChanged = !verify && installed !== undefined && (await this.#change(installed, facts, count));
    const wereMissing = isChanged ? false : await this.#verify(facts, count);
    this.#changed.clear();
    metrics.rulesInstalled(TABLE, { total: this.#elementCount, written: count.written, leftOut: this.#problems.size });
    return { wereMissing };
  }

  async isIntact(): Promise<boolean> {
    const { kernel, firewall } = this.#options;
    if (this.#installed === undefined || this.#written === undefined) return true;
    // Before the look, so that the next one notices a change during this one.
    const generation = kernel.generation();
    if (generation !== undefined && generation === this.#intactGeneration) return true;
    if (!sameRules(await kernel.rules(this.#family), this.#written.rules)) return false;
    if (!(await firewall.isIntact(this.#family))) return false;
    if (this.#installed.size <= MANY_CLAIMS && !(await this.#hasAllElements(this.#installed.values()))) return false;
    this.#intactGeneration = generation;
    return true;
  }

  problems(): readonly Problem[] {
    return [...this.#problems.values()];
  }

  #facts(): TableFacts {
    if (this.#node === undefined) throw new Error('the facts of the node come before the first write');
    return { node: this.#node, connectionMark: this.#options.connectionMark, unassigned: this.#unassigned };
  }

  /** Writes the difference. Resolves with whether the kernel accepted it. */
  async #change(installed: Map<string, Claim>, facts: TableFacts, count: { written: number }): Promise<boolean> {
    const { clock, log, metrics } = this.#options;
    try {
      const changes = new Changes();
      await eachInSlices(clock, this.#changed, (what) => changes.replace(installed.get(what), this.#wanted.get(what)));
      if (!isDeepStrictEqual(facts, this.#written?.facts)) {
        await this.#writeTable(facts, (await this.#elementsOf(this.#wanted.values())).conditions);
      } else await this.#writeConditions(changes.conditions);
      changes.addAll(this.#newlyRetired());
      await this.#writeElements(changes.batches(), count);
      for (const { chain, by } of changes.uses) {
        const known = this.#conditions.get(chain);
        if (known !== undefined) known.uses += by;
      }
      this.#elementCount += changes.growth;
      for (const what of this.#changed) {
        const claim = this.#wanted.get(what);
        if (claim === undefined) installed.delete(what);
        else installed.set(what, claim);
      }
      this.#installed = installed;
      return true;
    } catch (error) {
      if (!(error instanceof CaptureError) || error.mayPass) throw error;
      metrics.restoreFailed('partial');
      log.v(1)?.info('The kernel did not accept a change of elements; reading all of them', { err: error.message });
      return false;
    }
  }

  /** Reads everything, and writes the difference. Resolves with whether the kernel lacked what was installed. */
  async #verify(facts: TableFacts, count: { written: number }): Promise<boolean> {
    const { kernel, clock, metrics, ports, firewall } = this.#options;
    const [hadWritten, family] = [this.#hasWritten, this.#family];
    try {
      const wanted = await this.#elementsOf(this.#wanted.values());
      const { conditions } = wanted;
      const rules = await kernel.rules(family);
      const isWritten = this.#written !== undefined && sameRules(rules, this.#written.rules);
      const areSame = isWritten && isDeepStrictEqual(facts, this.#written?.facts);
      const hasAllConditions = [...conditions.keys()].every((chain) => this.#conditions.has(chain));
      if (!areSame || !hasAllConditions) await this.#writeTable(facts, conditions);
      const changes = new Changes();
      const found = await this.#readElements();
      for (const port of lostPorts(found, wanted.elements)) ports.found(port);
      await eachInSlices(clock, found.values(), (element) => {
        const other = wanted.elements.get(keyOf(element));
        if (element.set !== 'retired' && other === undefined) changes.remove(element);
      });
      await eachInSlices(clock, wanted.elements, ([key, element]) => {
        const other = found.get(key);
        if (other !== undefined && sameElement(other, element)) return;
        if (other !== undefined) changes.remove(other);
        changes.add(element);
      });
      this.#noteRetired(found);
      const areElementsSame = changes.isEmpty;
      changes.addAll(this.#newlyRetired());
      await this.#writeElements(changes.batches(), count);
      await this.#keepConditions(conditions);
      await firewall.letIn(family);
      this.#installed = new Map(this.#wanted);
      this.#elementCount = wanted.elements.size;
      this.#hasWritten = true;
      return !areElementsSame || (hadWritten ? !isWritten : rules.size === 0);
    } catch (error) {
      metrics.restoreFailed('full');
      throw error;
    }
  }

  /** Rewrites all rules; elements stay. */
  async #writeTable(facts: TableFacts, wanted: ReadonlyMap<string, UsedCondition>): Promise<void> {
    const { kernel, log } = this.#options;
    const conditions = Array.from(wanted.values(), ({ condition }) => condition);
    const text = tableText(facts, conditions);
    try {
      await kernel.run(text);
    } catch (error) {
      if (!(error instanceof CaptureError) || error.mayPass) throw error;
      // A set of this name may have another type: another program's, or another version's.
      log.v(1)?.info('The nft table cannot be changed; making it anew', { err: error.message });
      await kernel.run(`${removalText(this.#family)}${text}`);
    }
    for (const condition of conditions) this.#remember(condition);
    this.#written = { facts, rules: await kernel.rules(this.#family) };
  }

  /** Adds those that are new, and with them removes those that no element leads to any more. */
  async #writeConditions(conditions: readonly Condition[]): Promise<void> {
    const added = conditions.filter(({ chain }) => !this.#conditions.has(chain));
    if (added.length === 0) return;
    const names = new Set(conditions.map(({ chain }) => chain));
    const unused = [...this.#conditions].flatMap(([chain, { uses }]) =>
      uses === 0 && !names.has(chain) ? [chain] : [],
    );
    await this.#runConditions(added, unused);
  }

  /** Removes all others, whoever made them. */
  async #keepConditions(wanted: ReadonlyMap<string, UsedCondition>): Promise<void> {
    const unused = [...(this.#written?.rules.keys() ?? [])].filter((chain) => isCondition(chain) && !wanted.has(chain));
    if (unused.length > 0) await this.#runConditions([], unused);
    this.#conditions.clear();
    for (const [chain, used] of wanted) this.#conditions.set(chain, used);
  }

  async #runConditions(added: readonly Condition[], deleted: readonly string[]): Promise<void> {
    const { kernel } = this.#options;
    await kernel.run(conditionsText(this.#family, added, deleted));
    for (const condition of added) this.#remember(condition);
    for (const chain of deleted) this.#conditions.delete(chain);
    if (this.#written !== undefined) {
      this.#written = { facts: this.#written.facts, rules: await kernel.rules(this.#family) };
    }
  }

  #remember(condition: Condition): void {
    if (!this.#conditions.has(condition.chain)) this.#conditions.set(condition.chain, { condition, uses: 0 });
  }

  async #writeElements(batches: Iterable<ElementBatch>, count: { written: number }): Promise<void> {
    for (const batch of batches) {
      await this.#options.kernel.change(this.#family, batch);
      count.written += batch.added.length;
    }
  }

  async #elementsOf(claims: Iterable<Claim>) {
    const elements = new Map<string, Element>();
    const conditions = new Map<string, UsedCondition>();
    await eachInSlices(this.#options.clock, claims, (claim) => {
      const wanted = elementsOf(claim);
      for (const element of wanted.elements) elements.set(keyOf(element), element);
      for (const condition of wanted.conditions) {
        const known = conditions.get(condition.chain);
        if (known === undefined) conditions.set(condition.chain, { condition, uses: 1 });
        else known.uses++;
      }
    });
    return { elements, conditions };
  }

  async #readElements(): Promise<ReadonlyMap<string, Element>> {
    const found = new Map<string, Element>();
    for (const set of SET_NAMES) {
      for (const element of (await this.#options.kernel.elements(this.#family, set)) ?? []) {
        found.set(keyOf(element), element);
      }
    }
    return found;
  }

  async #hasAllElements(claims: Iterable<Claim>): Promise<boolean> {
    const { elements: wanted } = await this.#elementsOf(claims);
    const found = await this.#readElements();
    for (const [key, element] of wanted) {
      const other = found.get(key);
      if (other === undefined || !sameElement(other, element)) return false;
    }
    return [...found].every(([key, { set }]) => set === 'retired' || wanted.has(key));
  }

  /** Removes first the element of a port that had retired before: its time would not begin anew. */
  #newlyRetired(): readonly ElementBatch[] {
    const { ports, clock } = this.#options;
    const now = clock.now();
    for (const [key, untilMs] of this.#retired) if (untilMs - now < EXPIRING_MS) this.#retired.delete(key);
    return ports.retiredAfter(this.#retiredSerial).flatMap(({ serial, port, at }) => {
      this.#retiredSerial = serial;
      const leftMs = RETIRED_FOR_MS - Math.max(0, clock.wallNow() - at);
      if (leftMs < EXPIRING_MS) return [];
      const element: Element = {
        set: 'retired',
        protocol: port.protocol,
        port: port.localPort,
        comment: commentOf(port),
        leftMs,
      };
      const untilMs = this.#retired.get(keyOf(element));
      if (untilMs !== undefined && Math.abs(untilMs - (now + leftMs)) < EXPIRING_MS) return [];
      const deleted = untilMs === undefined ? [] : [element];
      this.#retired.set(keyOf(element), now + leftMs);
      return [{ deleted, added: [element] }];
    });
  }

  #noteRetired(found: ReadonlyMap<string, Element>): void {
    const now = this.#options.clock.now();
    this.#retired.clear();
    this.#retiredSerial = 0;
    for (const [key, { set, leftMs = 0 }] of found) if (set === 'retired') this.#retired.set(key, now + leftMs);
  }
}

interface UsedCondition {
  readonly condition: Condition;
  uses: number;
}

interface ElementBatch {
  readonly deleted: readonly Element[];
  readonly added: readonly Element[];
}

/** Changes of elements. Those of one claim go into one batch. */
class Changes {
  readonly conditions: Condition[] = [];
  readonly uses: { readonly chain: string; readonly by: 1 | -1 }[] = [];
  growth = 0;
  readonly #changes: ElementBatch[] = [];

  get isEmpty(): boolean {
    return this.#changes.length === 0;
  }

  replace(before: Claim | undefined, after: Claim | undefined): void {
    if (before === after) return;
    const [old, wanted] = [before && elementsOf(before), after && elementsOf(after)];
    for (const { chain } of old?.conditions ?? []) this.uses.push({ chain, by: -1 });
    for (const condition of wanted?.conditions ?? []) {
      this.uses.push({ chain: condition.chain, by: 1 });
      this.conditions.push(condition);
    }
    const isIn = (elements: readonly Element[] = [], element: Element) =>
      elements.some((other) => keyOf(other) === keyOf(element) && sameElement(other, element));
    const deleted = (old?.elements ?? []).filter((element) => !isIn(wanted?.elements, element));
    const added = (wanted?.elements ?? []).filter((element) => !isIn(old?.elements, element));
    this.growth += added.length - deleted.length;
    if (deleted.length + added.length > 0) this.#changes.push({ deleted, added });
  }

  add(element: Element): void {
    this.#changes.push({ deleted: [], added: [element] });
  }

  remove(element: Element): void {
    this.#changes.push({ deleted: [element], added: [] });
  }

  addAll(changes: readonly ElementBatch[]): void {
    this.#changes.push(...changes);
  }

  *batches(): Generator<ElementBatch> {
    let [deleted, added]: [Element[], Element[]] = [[], []];
    for (const change of this.#changes) {
      deleted.push(...change.deleted);
      added.push(...change.added);
      if (deleted.length + added.length < BATCH) continue;
      yield { deleted: bySet(deleted), added: bySet(added) };
      [deleted, added] = [[], []];
    }
    if (deleted.length + added.length > 0) yield { deleted: bySet(deleted), added: bySet(added) };
  }
}

/** What `nft list` prints between quotes and reads again, and room for it in the kernel (`NFT_USERDATA_MAXLEN`). */
const SAFE_NAME = /^[A-Za-z0-9./:_-]{1,240}$/;

/**
 * Names are validated before. This is the last line of defence: a ruleset that somebody saves by `nft list ruleset` and
 * loads again must not have other rules than this one.
 */
function problemOf({ owner, what }: Claim): Problem | undefined {
  if (SAFE_NAME.test(owner)) return undefined;
  const message = 'An address or port of a Service is not captured, because its name does not suit a comment of nft';
  return { key: `name ${what}`, svc: owner, message, fields: { what } };
}

function bySet(elements: readonly Element[]): readonly Element[] {
  return [...Map.groupBy(elements, ({ set }) => set).values()].flat();
}

function sameRules(one: ReadonlyMap<string, string>, other: ReadonlyMap<string, string>): boolean {
  return one.size === other.size && [...one].every(([chain, rules]) => other.get(chain) === rules);
}

function isCondition(chain: string): boolean {
  return chain.startsWith('from-');
}

/** Ports that the kernel has for Service ports that nobody wants any more: they went while nobody ran. */
function lostPorts(
  found: ReadonlyMap<string, Element>,
  wanted: ReadonlyMap<string, Element>,
): readonly InstalledPort[] {
  return [...found].flatMap(([key, element]) => {
    if (element.set !== 'local-ports' || wanted.has(key)) return [];
    return installedPortOf(element) ?? [];
  });
}

/** The local port that an element of `local-ports` or `retired` names. */
export function installedPortOf({ protocol, port, comment, leftMs }: Element): InstalledPort | undefined {
  const served = servedSetOf(comment);
  if (served === undefined) return undefined;
  const retiredForMs = leftMs === undefined ? undefined : Math.max(0, RETIRED_FOR_MS - leftMs);
  return retiredForMs === undefined
    ? { name: served.name, set: served.set, protocol, localPort: port }
    : { name: served.name, set: served.set, protocol, localPort: port, retiredForMs };
}
