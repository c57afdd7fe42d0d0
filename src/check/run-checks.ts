import { type Finding, findingText, type Level } from '../model/finding.ts';
import type { Clock } from '../util/clock.ts';
import { counted, messageOf, printable } from '../util/text.ts';
import { withDeadline } from '../util/wait.ts';
import { fail } from './finding.ts';

export interface Check {
  /** One or two words. */
  readonly name: string;
  readonly run: () => readonly Finding[] | Promise<readonly Finding[]>;
}

export interface NamedFinding extends Finding {
  readonly check: string;
}

/** Longer than all deadlines inside one check together, so it only ends a check that hangs. */
export const CHECK_DEADLINE_MS = 30_000;

const NAME_WIDTH = 14;

/** Runs one check after the other and gives its findings at once. A check that throws or hangs has failed. */
export async function* runChecks(checks: Iterable<Check>, clock: Clock): AsyncGenerator<NamedFinding> {
  for (const { name, run } of checks) {
    for (const finding of await findingsOf(run, clock)) yield { check: name, ...finding };
  }
}

async function findingsOf(run: Check['run'], clock: Clock): Promise<readonly Finding[]> {
  const late = `no result within ${CHECK_DEADLINE_MS / 1_000} s`;
  try {
    return await withDeadline((async () => run())(), { clock, ms: CHECK_DEADLINE_MS, late });
  } catch (error) {
    return [fail(`this check did not finish: ${messageOf(error)}`, 'see whether other findings explain it')];
  }
}

/** `warn  limits        12 descriptors → raise it`, always one line: findings may contain text from the network. */
export function findingLine(finding: NamedFinding): string {
  const { level, check, advice } = finding;
  const advised = advice === undefined ? '' : ` → ${advice}`;
  return printable(`${level.padEnd(4)}  ${check.padEnd(NAME_WIDTH)} ${findingText(finding)}${advised}`);
}

/** The last line of the report. */
export function summaryLine(findings: readonly NamedFinding[]): string {
  const [fails, warns] = [count(findings, 'fail'), count(findings, 'warn')];
  const warnings = warns === 0 ? '' : `; ${counted(warns, 'warning')}`;
  if (fails > 0) return `The proxy cannot serve here: ${counted(fails, 'failure')}${warnings}.`;
  return `The proxy can serve here${warnings}.`;
}

/** For machines: `{"ok": true, "findings": [{"check", "level", "subject", "found", "advice", "place"}]}`. */
export function findingsJson(findings: readonly NamedFinding[]): string {
  const listed = findings.map(({ check, level, subject, found, advice, place }) => {
    return { check, level, subject, found, advice, place };
  });
  return JSON.stringify({ ok: exitCode(findings) === 0, findings: listed }, undefined, 2);
}

export function exitCode(findings: readonly NamedFinding[]): number {
  return count(findings, 'fail') === 0 ? 0 : 1;
}

function count(findings: readonly NamedFinding[], level: Level): number {
  return findings.filter((finding) => finding.level === level).length;
}
