import { parseCommandLine } from '../config/command-line.ts';
import type { CommandLine } from '../config/config.ts';
import { readRegularFile } from '../kernel/files.ts';
import { splitCheckArguments } from '../operate/check/arguments.ts';
import { type Finding, fail, ok, warn } from '../operate/check/finding.ts';
import { exitCode, findingLine, findingsJson, summaryLine } from '../operate/check/report.ts';
import { type Check, type NamedFinding, runChecks } from '../operate/check/run-checks.ts';
import type { Terminal } from '../operate/command/subcommand.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { parseDocuments } from '../util/yaml.ts';
import { machineChecks } from './check-machine.ts';
import { type KnownServices, sourceChecks } from './check-source.ts';

/**
 * `kube-userspace-proxy check [-o json] [flags of a run]`: whether the proxy would run here with these flags. Resolves
 * with the exit code: 1 when something is in its way.
 */
export async function check(argv: readonly string[], { out }: Pick<Terminal, 'out'>): Promise<number> {
  const { output, flags } = splitCheckArguments(argv);
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
function checksOf(flags: readonly string[]): readonly Check[] {
  const commandLine = parseCommandLine(flags, (path) => parseDocuments(readRegularFile(path)));
  const configuration: Check = { name: 'configuration', run: () => configurationFindings(commandLine) };
  if (commandLine.kind !== 'run') return [configuration];
  const known: KnownServices = { services: [] };
  const { config } = commandLine;
  return [configuration, ...sourceChecks(config, known), ...machineChecks(config, known)];
}

function configurationFindings(commandLine: CommandLine): readonly Finding[] {
  switch (commandLine.kind) {
    case 'run': {
      const { config, warnings } = commandLine;
      const file = config.configFile === undefined ? '' : ` with ${config.configFile}`;
      return [
        ok(`the flags${file} are valid`),
        ...warnings.map((warning) => warn(warning, 'take them away, or leave them')),
      ];
    }
    case 'error':
      return [fail(commandLine.text, 'mend it; the rest was not looked at')];
    default:
      return [
        fail('these flags do not ask for a run', 'leave away --cleanup, --init-only, --write-config-to and --version'),
      ];
  }
}
