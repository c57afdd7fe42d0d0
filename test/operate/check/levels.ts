import type { Finding } from '../../../src/operate/check/finding.ts';

/** `warn: what was found` of each, for comparisons. */
export function told(findings: readonly Finding[]): string[] {
  return findings.map(({ level, found }) => `${level}: ${found}`);
}

/** What is told of this level, with the advice. */
export function of(level: Finding['level'], findings: readonly Finding[]): string[] {
  return findings.filter((finding) => finding.level === level).map(({ found, advice }) => `${found} → ${advice}`);
}
