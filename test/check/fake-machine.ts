import type { Finding } from '../../src/check/finding.ts';
import type { Machine } from '../../src/check/machine.ts';
import type { ExecRequest, ExecResult } from '../../src/kernel/iptables/exec.ts';
import { findingText } from '../../src/model/finding.ts';

interface Facts extends Partial<Omit<Machine, 'read' | 'exec'>> {
  readonly files?: Readonly<Record<string, string>>;
  /** The output of a program, by its name and arguments; `undefined`: it is not installed. */
  readonly program?: (line: string, request: ExecRequest) => string | ExecResult | undefined;
}

/** A machine without programs and processes, except for `facts`. */
export function fakeMachine({ files = {}, program = () => undefined, ...others }: Facts = {}): Machine {
  return {
    exec: async (request) => {
      const printed = program([request.program, ...request.args].join(' '), request);
      if (printed === undefined) return { outcome: 'missing' };
      return typeof printed === 'string' ? { outcome: 'exited', code: 0, stdout: printed, stderr: '' } : printed;
    },
    read: (path) => files[path],
    isWritable: () => true,
    interfaces: () => ['lo'],
    neighbours: () => [],
    servingProxy: async () => undefined,
    tryToBind: async () => undefined,
    isListening: () => false,
    listeners: () => new Set(),
    ownersOf: () => new Map(),
    ...others,
  };
}

/** `warn: what was found → what to do` */
export function linesOf(findings: readonly Finding[]): string[] {
  return findings.map((finding) => {
    const { level, advice } = finding;
    return `${level}: ${findingText(finding)}${advice === undefined ? '' : ` → ${advice}`}`;
  });
}

/** Warnings and failures. */
export function troubles(findings: readonly Finding[]): string[] {
  return linesOf(findings.filter(({ level }) => level !== 'ok'));
}
