import type { Rule } from './rule.ts';

export interface FindRefusedInput {
  /** Rules of one table, of which at least one is thought to be refused. */
  readonly rules: readonly Rule[];
  /**
   * Whether the kernel takes all of these rules together. Rejects when it cannot tell (a lock, a deadline): the search
   * then rejects with the same error, as leaving out innocent rules would be worse than another try.
   */
  readonly accepts: (rules: readonly Rule[]) => Promise<boolean>;
}

/**
 * Finds the rules that the kernel refuses. Empty when it takes all of them, so that the fault lies elsewhere.
 *
 * Rules are grouped by shape first, since most refusals concern a whole shape: a kernel without the conntrack match
 * refuses every rule that has it. Such a shape costs five probes, however many rules it has; `n` single refusals cost
 * about `n · 2 · log₂(rules)`.
 */
export async function findRefused({ rules, accepts }: FindRefusedInput): Promise<readonly Rule[]> {
  if (await accepts(rules)) return [];
  const refused: Rule[] = [];
  for (const group of Map.groupBy(rules, (rule) => shapeOf(rule.spec)).values()) {
    if (await accepts(group)) continue;
    refused.push(...((await isRefusedThroughout(group, accepts)) ? group : await bisect(group, accepts)));
  }
  return refused;
}

/** The spec without what differs from one Service to the next: the comment, and every word with a digit in it. */
function shapeOf(spec: string): string {
  return spec.replace(/"[^"]*"/g, '""').replace(/\S*\d\S*/g, '0');
}

/**
 * Judged by a rule of the first, the middle and the last Service port: three far apart that are each refused alone, for
 * reasons of their own, are not to be expected.
 */
async function isRefusedThroughout(group: readonly Rule[], accepts: FindRefusedInput['accepts']): Promise<boolean> {
  const ofOwners = [...new Map(group.map((rule) => [rule.owner, rule])).values()];
  const samples = new Set([ofOwners.at(0), ofOwners.at(ofOwners.length >> 1), ofOwners.at(-1)]);
  for (const rule of samples) {
    if (rule !== undefined && (await accepts([rule]))) return false;
  }
  return true;
}

/** `rules` are refused as a whole. */
async function bisect(rules: readonly Rule[], accepts: FindRefusedInput['accepts']): Promise<readonly Rule[]> {
  if (rules.length <= 1) return rules;
  const middle = rules.length >> 1;
  const refused: Rule[] = [];
  for (const half of [rules.slice(0, middle), rules.slice(middle)]) {
    if (!(await accepts(half))) refused.push(...(await bisect(half, accepts)));
  }
  return refused;
}
