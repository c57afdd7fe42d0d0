import { configure } from '../config/command-line.ts';
import type { CommandLine } from '../config/config.ts';
import type { FlagTexts } from '../config/evaluate.ts';
import { UsageError } from '../config/usage-error.ts';
import { readRegularFile } from '../kernel/files.ts';
import { type Finding, fail, ok, warn } from '../operate/check/finding.ts';
import { exitCode, findingLine, findingsJson, summaryLine } from '../operate/check/report.ts';
import { type Check, type NamedFinding, runChecks } from '../operate/check/run-checks.ts';
import type { Terminal } from '../operate/command/command.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { parseDocuments } from '../util/yaml.ts';
import { machineChecks } from './check-machine.ts';
import { type KnownServices, sourceChecks } from './check-source.ts';

/**
 * `kube-userspace-proxy check [-o json] [flags of a run]`: whether the proxy would run here with these flags. Resolves
 * with the exit code: 1 when something is in its way.
 */
export async function check(
  { output, flags }: { readonly output: string; readonly flags: FlagTexts },
  { out }: Pick<Terminal, 'out'>,
): Promise<number> {
  const findings: NamedFinding[] = [];
  for await (const finding of runChecks(checksOf(flags), clock)) {
    findings.push(finding);
    // As they come: some take seconds.
    if (output === 'text') out(`${findingLine(finding)}\n`);
  }
  out(`${output === 'json' ? findingsJson(findings) : summaryLine(findings)}\n`);
  return exitCode(findings);
}

/** Without valid flags nobody knows what else there is to look at. */
function checksOf(flags: FlagTexts): readonly Check[] {
  const commandLine = commandLineOf(flags);
  const configuration: Check = { name: 'configuration', run: () => configurationFindings(commandLine) };
  if (commandLine instanceof UsageError || commandLine.kind !== 'run') return [configuration];
  const known: KnownServices = { services: [] };
  const { config } = commandLine;
  return [configuration, ...sourceChecks(config, known), ...machineChecks(config, known)];
}

function commandLineOf(flags: FlagTexts): CommandLine | UsageError {
  try {
    return configure(flags, (path) => parseDocuments(readRegularFile(path)));
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
}

function configurationFindings(commandLine: CommandLine | UsageError): readonly Finding[] {
  if (commandLine instanceof UsageError) return [fail(commandLine.message, 'mend it; the rest was not looked at')];
  switch (commandLine.kind) {
    case 'run': {
      const { config, warnings } = commandLine;
      const file = config.configFile === undefined ? '' : ` with ${config.configFile}`;
      return [
        ok(`the flags${file} are valid`),
        ...warnings.map((warning) => warn(warning, 'take them away, or leave them')),
      ];
    }
    default:
      return [
        fail('these flags do not ask for a run', 'leave away --cleanup, --init-only, --write-config-to and --version'),
      ];
  }
}
