import { printable } from '../../util/text.ts';
import { counted } from './counted.ts';
import type { Level } from './finding.ts';
import type { NamedFinding } from './run-checks.ts';

const CHECK_WIDTH = 14;

/** `warn  limits        12 descriptors → raise it`, as one line. What was found may be text from the network. */
export function findingLine({ level, check, found, advice }: NamedFinding): string {
  const advised = advice === undefined ? '' : ` → ${advice}`;
  return printable(`${level.padEnd(4)}  ${check.padEnd(CHECK_WIDTH)} ${found}${advised}`);
}

/** The last line: what it comes to. */
export function summaryLine(findings: readonly NamedFinding[]): string {
  const [fails, warns] = [count(findings, 'fail'), count(findings, 'warn')];
  const warnings = warns === 0 ? '' : `; ${counted(warns, 'warning')}`;
  if (fails > 0) return `The proxy cannot serve here: ${counted(fails, 'failure')}${warnings}.`;
  return `The proxy can serve here${warnings}.`;
}

/** For machines: `{"ok": true, "findings": [{"check", "level", "found", "advice"}]}`. */
export function findingsJson(findings: readonly NamedFinding[]): string {
  return JSON.stringify(
    {
      ok: exitCode(findings) === 0,
      findings: findings.map(({ check, level, found, advice }) => ({ check, level, found, advice })),
    },
    undefined,
    2,
  );
}

export function exitCode(findings: readonly NamedFinding[]): number {
  return count(findings, 'fail') === 0 ? 0 : 1;
}

function count(findings: readonly NamedFinding[], level: Level): number {
  return findings.filter((finding) => finding.level === level).length;
}
