import type { ServicePortName } from '../model/service.ts';
import { CLAIM_KINDS, type Claim, claimsOf, type Portal } from './claims.ts';
import type { Rule } from './rule.ts';
import { unsafeReason } from './safe-spec.ts';
import { type NodeFacts, steering } from './steering.ts';

/** `owner` does without the rules for `what`, as `holder` has it. */
export interface PortalConflict {
  readonly owner: ServicePortName;
  readonly holder: ServicePortName;
  readonly what: string;
}

/** A rule that was left out; `reason` is the rest of the sentence "… because …". */
export interface UnsafeRule {
  readonly rule: Rule;
  readonly reason: string;
}

export interface RenderedPortals {
  /** In the order in which they are to stand in their chains. */
  readonly rules: readonly Rule[];
  readonly conflicts: readonly PortalConflict[];
  readonly unsafe: readonly UnsafeRule[];
}

/**
 * The rules of all Service ports in one family. The result does not depend on the order of `portals`: claims are
 * granted by kind, then by name. API servers prevent most conflicts; manifests do not.
 */
export function renderPortals(portals: Iterable<Portal>, node: NodeFacts): RenderedPortals {
  const steer = steering(node);
  const claimed = [...portals]
    .sort((a, b) => compare(a.servicePort.name, b.servicePort.name))
    .map((portal) => ({ owner: portal.servicePort.name, claims: claimsOf(portal, steer) }));

  const holders = new Map<string, ServicePortName>();
  const rules: Rule[] = [];
  const conflicts: PortalConflict[] = [];
  const unsafe: UnsafeRule[] = [];
  for (const [owner, claim] of inOrderOfStrength(claimed)) {
    const holder = holders.get(claim.what);
    if (holder === undefined) {
      holders.set(claim.what, owner);
      for (const rule of claim.rules) {
        const reason = unsafeReason(rule.spec);
        if (reason === undefined) rules.push(rule);
        else unsafe.push({ rule, reason });
      }
    } else if (holder !== owner) {
      conflicts.push({ owner, holder, what: claim.what });
    }
  }
  return { rules, conflicts, unsafe };
}

interface Claimed {
  readonly owner: ServicePortName;
  readonly claims: readonly Claim[];
}

function* inOrderOfStrength(claimed: readonly Claimed[]): Generator<readonly [ServicePortName, Claim]> {
  for (const kind of CLAIM_KINDS) {
    for (const { owner, claims } of claimed) {
      for (const claim of claims) if (claim.kind === kind) yield [owner, claim];
    }
  }
}

/** By code unit: the same on every node, whatever its locale. */
function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
