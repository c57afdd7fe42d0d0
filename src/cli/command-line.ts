import yargs from 'yargs';
import { endpointName } from '../model/endpoint.ts';
import { collide } from './addresses.ts';
import type { CommandLine, Config, LogConfig, SourceConfig } from './config.ts';
import { formatDuration } from './duration.ts';
import { FLAGS, type Flag, type FlagName, type FlagValues } from './flags.ts';
import { suggest } from './suggest.ts';
import { UsageError } from './usage-error.ts';
import { PROGRAM, VERSION } from './version.ts';

const NAMES = Object.keys(FLAGS) as readonly FlagName[];
const GENERAL = ['help', 'version'] as const;

/**
 * Turns the arguments after the program's name into what is to be done. Never prints, exits or reads the
 * environment: kubelet puts a Service's name into variables of the Pod, so any prefix of ours could be taken.
 */
export function parseCommandLine(argv: readonly string[]): CommandLine {
  const { flags, rest, output, failure } = split(argv);
  if (flags.get('help') === true) return { kind: 'help', text: output };
  if (flags.get('version') === true) return { kind: 'version', text: `${PROGRAM} v${VERSION}` };
  try {
    if (failure !== undefined) throw new UsageError(failure);
    refuseUnknown([...unknownFlags(argv, flags), ...rest]);
    const values = Object.fromEntries(NAMES.map((name) => [name, evaluate(name, flags.get(name))])) as FlagValues;
    const log: LogConfig = { verbosity: values.v, format: values['log-format'] };
    if (values.cleanup) return { kind: 'cleanup', iptablesMode: values['iptables-mode'], log };
    return { kind: 'run', config: toConfig(values, log) };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { kind: 'error', text: error.message };
  }
}

interface SplitArguments {
  /** By name: one text, `true` for a bare switch, or an array of these when it was repeated. */
  readonly flags: ReadonlyMap<string, unknown>;
  /** What is no flag of ours, as it was typed. */
  readonly rest: readonly string[];
  readonly output: string;
  readonly failure: string | undefined;
}

/** Only splits the arguments into flags and texts, the way pflag would; what the texts mean is not yargs' business. */
function split(argv: readonly string[]): SplitArguments {
  let output = '';
  let failure: string | undefined;
  const parser = yargs()
    .scriptName(PROGRAM)
    .usage(
      'Usage: $0 [--kubeconfig FILE | --manifests PATH] [flags]\n\nBalances the TCP and UDP connections to Kubernetes Services over their endpoints, on this node.',
    )
    .locale('en')
    .updateStrings({
      'Not enough arguments following: %s': 'a value is missing after --%s',
      'Show help': 'show this help',
      'Show version number': 'show the version',
    })
    .wrap(100)
    // With this and the callback of parseSync, yargs neither prints nor exits.
    .fail((message) => {
      failure ??= message;
    })
    .parserConfiguration({
      'boolean-negation': false,
      'camel-case-expansion': false,
      'parse-numbers': false,
      'parse-positional-numbers': false,
      // `--udp-timeout -5s` is a wrong duration, not a flag "-5s".
      'nargs-eats-options': true,
      // In place of .strict(): keeps what was typed, so that a suggestion can be made, and keeps `--constructor` and
      // its like out of yargs' own objects, where they make it throw.
      'unknown-options-as-args': true,
    })
    .help()
    .alias('help', 'h')
    .version(VERSION);
  for (const [name, flag] of Object.entries<Flag<unknown>>(FLAGS)) {
    parser.option(name, {
      group: flag.group,
      describe: flag.describe,
      defaultDescription: flag.fallbackText ?? flag.fallback[0],
      // yargs would take `--cleanup=maybe` for false if it knew that it is boolean.
      ...(flag.isSwitch ? {} : { nargs: 1 }),
    });
  }
  parser.group([...GENERAL], 'General:');
  const { _, $0, ...flags } = parser.parseSync([...argv], {}, (_error, _argv, text) => {
    output = text;
  });
  return { flags: new Map(Object.entries(flags)), rest: _.map(String), output, failure };
}

/** Flags that yargs has understood although they are none of ours, as they were typed. */
function unknownFlags(argv: readonly string[], flags: ReadonlyMap<string, unknown>): string[] {
  const known = new Set<string>([...NAMES, ...GENERAL, 'h']);
  return [...flags.keys()]
    .filter((key) => !known.has(key))
    .map((key) => {
      // "-bind-address" comes back as the letters b, i, n, d.
      const cluster = key.length === 1 ? argv.find((argument) => argument.startsWith(`-${key}`)) : undefined;
      return cluster ?? `--${key}`;
    });
}

function refuseUnknown([unknown]: readonly string[]): void {
  if (unknown === undefined) return;
  if (!unknown.startsWith('-')) {
    throw new UsageError(
      `unexpected argument ${JSON.stringify(unknown)}: every value follows a flag; several paths are separated by commas`,
    );
  }
  const word = unknown.replace(/^-+/, '').replace(/=.*$/s, '');
  const meant = suggest(word, [...NAMES, ...GENERAL]);
  const advice = meant === undefined ? 'see --help for those there are' : `did you mean --${meant}?`;
  throw new UsageError(`unknown flag ${JSON.stringify(unknown)}: ${advice}`);
}

function evaluate(name: FlagName, given: unknown): unknown {
  const flag: Flag<unknown> = FLAGS[name];
  const occurrences = given === undefined ? flag.fallback : [given].flat().map(String);
  try {
    return flag.parse(occurrences);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`--${name} ${JSON.stringify(occurrences.join(','))}: ${error.message}`);
  }
}

function toConfig(values: FlagValues, log: LogConfig): Config {
  const syncPeriodMs = values['iptables-sync-period'];
  const minSyncPeriodMs = values['iptables-min-sync-period'];
  if (minSyncPeriodMs > syncPeriodMs) {
    throw new UsageError(
      `--iptables-min-sync-period ${formatDuration(minSyncPeriodMs)}: ` +
        `must not exceed --iptables-sync-period ${formatDuration(syncPeriodMs)}`,
    );
  }
  const healthzAddress = values['healthz-bind-address'];
  const metricsAddress = values['metrics-bind-address'];
  if (healthzAddress && metricsAddress && collide(healthzAddress, metricsAddress)) {
    throw new UsageError(
      `--metrics-bind-address ${endpointName(metricsAddress)}: ` +
        `taken by --healthz-bind-address ${endpointName(healthzAddress)}; give one of them another port`,
    );
  }
  const udpIdleTimeoutMs = values['udp-timeout'];
  return {
    source: toSource(values),
    bindAddress: values['bind-address'],
    proxyPortRange: values['proxy-port-range'],
    nodePortAddresses: values['nodeport-addresses'],
    hostnameOverride: values['hostname-override'],
    engine: values.dataplane,
    workers: values.workers,
    dataPlane: {
      tcpHalfOpenTimeoutMs: values['tcp-half-open-timeout'],
      udpIdleTimeoutMs,
      // A longer --udp-timeout alone must not be an error, so this one follows it.
      udpFirstReplyTimeoutMs: Math.max(udpIdleTimeoutMs, values['udp-first-reply-timeout']),
      udpMaxFlowsPerService: values['udp-max-flows-per-service'],
      udpMaxFlows: values['udp-max-flows'],
      affinityMaxClients: values['affinity-max-clients'],
    },
    iptablesMode: values['iptables-mode'],
    iptablesSyncPeriodMs: syncPeriodMs,
    iptablesMinSyncPeriodMs: minSyncPeriodMs,
    healthzAddress,
    metricsAddress,
    log,
  };
}

function toSource(values: FlagValues): SourceConfig {
  const { manifests: paths, kubeconfig, master } = values;
  if (paths.length === 0) {
    return {
      kind: 'kubernetes',
      kubeconfig,
      master,
      qps: values['kube-api-qps'],
      burst: values['kube-api-burst'],
      contentType: values['kube-api-content-type'],
    };
  }
  const other = kubeconfig === undefined ? master && '--master' : '--kubeconfig';
  if (other !== undefined) {
    throw new UsageError(`--manifests and ${other} exclude each other: Services come from files or from an API server`);
  }
  return { kind: 'manifests', paths };
}
