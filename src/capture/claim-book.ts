import type { Conflict, NodeFacts, Portal } from '../model/capture.ts';
import type { ServicePortName } from '../model/service.ts';
import { CLAIM_KINDS, type Claim, claimsOf } from './claims.ts';

/** The Service port that has a {@link Claim.what}; `undefined` for none. */
export type HolderOf = (what: string) => ServicePortName | undefined;

/** Something that only one claim gets went from one to another; `undefined`: from or to none. */
type OnGranted = (before: Claim | undefined, after: Claim | undefined) => void;

/**
 * Who gets what of all that the portals of one family claim. Work is in proportion to the change. The result does not
 * depend on the order of updates: claims are granted by kind, then to who has it in the kernel, then by name. When a
 * holder goes, the next claimant gets it.
 */
export class ClaimBook {
  readonly #node: NodeFacts;
  readonly #onGranted: OnGranted;
  readonly #claims = new Map<ServicePortName, readonly Claim[]>();
  /** By `Claim.what`, the strongest first; never empty. */
  readonly #claimants = new Map<string, readonly Claim[]>();
  /** Every `Claim.what` that more than one claim names. */
  readonly #contested = new Set<string>();
  /** The holder in the kernel of each `what` that has another holder now. */
  readonly #heldBefore = new Map<string, ServicePortName | undefined>();
  #installed: HolderOf;

  /** `installed`: the holders in the kernel now. */
  constructor(node: NodeFacts, onGranted: OnGranted, installed: HolderOf = () => undefined) {
    this.#node = node;
    this.#onGranted = onGranted;
    this.#installed = installed;
  }

  set(portal: Portal): void {
    this.#replaceClaims(portal.servicePort.name, claimsOf(portal, this.#node));
  }

  remove(name: ServicePortName): void {
    this.#replaceClaims(name, []);
  }

  /** All that was granted is installed now: each holder keeps what it has for as long as it claims it. */
  settle(): void {
    this.#heldBefore.clear();
    this.#installed = () => undefined;
  }

  /** The holder in the kernel. */
  holderOf(what: string): ServicePortName | undefined {
    if (this.#heldBefore.has(what)) return this.#heldBefore.get(what);
    return this.#claimants.get(what)?.[0]?.owner ?? this.#installed(what);
  }

  /** The claim that has it now. */
  granted(what: string): Claim | undefined {
    return this.#claimants.get(what)?.[0];
  }

  *allGranted(): Generator<Claim> {
    for (const [claim] of this.#claimants.values()) if (claim !== undefined) yield claim;
  }

  conflicts(): readonly Conflict[] {
    return [...this.#contested].flatMap((what) => this.#conflictsAt(what));
  }

  conflictsOf(name: ServicePortName): readonly Conflict[] {
    return (this.#claims.get(name) ?? [])
      .filter(({ what }) => this.#contested.has(what))
      .flatMap(({ what }) => this.#conflictsAt(what).filter(({ owner }) => owner === name));
  }

  #conflictsAt(what: string): readonly Conflict[] {
    const [holder, ...others] = (this.#claimants.get(what) ?? []).map(({ owner }) => owner);
    if (holder === undefined) return [];
    return others.filter((owner) => owner !== holder).map((owner) => ({ owner, holder, what }));
  }

  #replaceClaims(name: ServicePortName, after: readonly Claim[]): void {
    const before = new Set(this.#claims.get(name));
    const others = (claimants: readonly Claim[]) => claimants.filter((claim) => !before.has(claim));
    const wanted = new Set(after.map(({ what }) => what));
    for (const { what } of before) if (!wanted.has(what)) this.#change(what, others);
    for (const claim of after) {
      // In one step, so that no other claimant has it in between.
      this.#change(claim.what, (claimants) => {
        const left = before.size === 0 ? claimants : others(claimants);
        return left.length === 0 ? [claim] : [...left, claim];
      });
    }
    if (after.length === 0) this.#claims.delete(name);
    // An array that grows has room to spare, and nearly always one claimant is all.
    else this.#claims.set(name, [...after]);
  }

  #change(what: string, change: (claimants: readonly Claim[]) => readonly Claim[]): void {
    const before = this.#claimants.get(what) ?? [];
    const holder = this.holderOf(what);
    const isOthers = ({ owner }: Claim) => Number(owner !== holder);
    const wanted = change(before);
    const byHolder = (a: Claim, b: Claim) => byKind(a, b) || isOthers(a) - isOthers(b) || byRank(a, b);
    const after = wanted.length > 1 ? wanted.toSorted(byHolder) : wanted;
    if (after.length === 0) this.#claimants.delete(what);
    else this.#claimants.set(what, after);
    if (after.length > 1) this.#contested.add(what);
    else this.#contested.delete(what);
    const [old, granted] = [before[0], after[0]];
    if (old?.owner !== granted?.owner) this.#heldBefore.set(what, holder);
    if (old !== granted) this.#onGranted(old, granted);
  }
}

function byKind({ kind: a }: Claim, { kind: b }: Claim): number {
  return a === b ? 0 : CLAIM_KINDS.indexOf(a) - CLAIM_KINDS.indexOf(b);
}

/** By kind, then by name. */
export function byRank(a: Claim, b: Claim): number {
  const kinds = byKind(a, b);
  if (kinds !== 0 || a.owner === b.owner) return kinds || a.index - b.index;
  // By code unit: the same in every locale.
  return a.owner < b.owner ? -1 : 1;
}
