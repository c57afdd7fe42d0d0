import type { Rule } from './rule.ts';

/** Whether the kernel accepts these rules together. Rejects when it cannot tell (a lock, a deadline). */
export type Accepts = (rules: readonly Rule[]) => Promise<boolean>;

/**
 * Finds the rules of one table that the kernel refuses. Rejects when `accepts` does: leaving out innocent rules would
 * be worse than a retry.
 *
 * Rules are grouped by shape first, because a kernel without the conntrack match refuses every rule that has it. Such a
 * shape costs five probes, however many rules it has; `n` single refusals cost about `n · 2 · log₂(rules)`.
 */
export async function findRefused(rules: readonly Rule[], accepts: Accepts): Promise<readonly Rule[]> {
  if (await accepts(rules)) return [];
  const refused: Rule[] = [];
  for (const group of Map.groupBy(rules, (rule) => shapeOf(rule.spec)).values()) {
    if (await accepts(group)) continue;
    refused.push(...((await isRefusedThroughout(group, accepts)) ? group : await bisect(group, accepts)));
  }
  return refused;
}

/** The spec without its comment and every word with a digit in it, which differ between Services. */
function shapeOf(spec: string): string {
  return spec.replace(/"[^"]*"/g, '""').replace(/\S*\d\S*/g, '0');
}

/**
 * Probes one rule of the first, the middle and the last Service port: these three are unlikely to be refused for
 * different reasons.
 */
async function isRefusedThroughout(group: readonly Rule[], accepts: Accepts): Promise<boolean> {
  const ofOwners = [...new Map(group.map((rule) => [rule.owner, rule])).values()];
  const samples = new Set([ofOwners.at(0), ofOwners.at(ofOwners.length >> 1), ofOwners.at(-1)]);
  for (const rule of samples) {
    if (rule !== undefined && (await accepts([rule]))) return false;
  }
  return true;
}

/** `rules` are refused as a whole. */
async function bisect(rules: readonly Rule[], accepts: Accepts): Promise<readonly Rule[]> {
  if (rules.length <= 1) return rules;
  const middle = rules.length >> 1;
  const refused: Rule[] = [];
  for (const half of [rules.slice(0, middle), rules.slice(middle)]) {
    if (!(await accepts(half))) refused.push(...(await bisect(half, accepts)));
  }
  return refused;
}
