import { endpointName } from '../model/endpoint.ts';
import { collide } from './addresses.ts';
import { splitArguments } from './arguments.ts';
import type { CommandLine, Config, LogConfig, SourceConfig } from './config.ts';
import { configurationFile, effectiveFields } from './configuration.ts';
import { type ReadDocuments, readConfigurationFile } from './configuration-file.ts';
import { formatDuration } from './duration.ts';
import { evaluate } from './evaluate.ts';
import type { SettingValues } from './settings.ts';
import { UsageError } from './usage-error.ts';
import { PROGRAM, VERSION } from './version.ts';

/**
 * Turns the arguments after the program's name into what is to be done. Never prints, exits or reads the
 * environment: kubelet puts a Service's name into variables of the Pod, so any prefix of ours could be taken. The file
 * of `--config` is read through `readDocuments`.
 */
export function parseCommandLine(argv: readonly string[], readDocuments: ReadDocuments = noFiles): CommandLine {
  const { help, version, output, flags, problem } = splitArguments(argv);
  if (help) return { kind: 'help', text: output };
  if (version) return { kind: 'version', text: `${PROGRAM} v${VERSION}` };
  try {
    if (problem !== undefined) throw problem;
    const configFile = flags.get('config')?.at(-1) || undefined;
    const file = configFile === undefined ? undefined : readConfigurationFile(configFile, readDocuments);
    const { values, warnings } = evaluate(flags, file);
    return toCommandLine(values, warnings);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { kind: 'error', text: error.message };
  }
}

function noFiles(): never {
  throw new UsageError('no file can be read here');
}

function toCommandLine(values: SettingValues, warnings: readonly string[]): CommandLine {
  const log = toLogConfig(values);
  const path = values['write-config-to'];
  if (values.cleanup && path === '') return { kind: 'cleanup', iptablesMode: values['iptables-mode'], log };
  const config = toConfig(values, log);
  if (path !== '') return { kind: 'write-config', path, text: configurationFile(config.fields) };
  if (values['init-only']) return { kind: 'init', conntrack: config.host.conntrack, log };
  return { kind: 'run', config, warnings };
}

function toLogConfig(values: SettingValues): LogConfig {
  const format = values['log-format'];
  const isJson = format === 'auto' && values['logging-format'] === 'json';
  return { verbosity: values.v, format: isJson ? 'json' : format };
}

function toConfig(values: SettingValues, log: LogConfig): Config {
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
  const nodePortAddresses = values['nodeport-addresses'];
  return {
    configFile: values.config || undefined,
    source: toSource(values),
    bindAddress: values['bind-address'],
    proxyPortRange: values['proxy-port-range'],
    nodePortAddresses: nodePortAddresses.filter((one) => one !== 'primary'),
    nodePortsOnPrimary: nodePortAddresses.includes('primary'),
    externalIpAllowList: values['external-ip-allow-list'],
    clusterCidrs: values['cluster-cidr'],
    hostnameOverride: values['hostname-override'],
    engine: values.dataplane,
    workers: values.workers,
    dataPlane: {
      endpointDrainTimeoutMs: values['endpoint-drain-timeout'],
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
    bindAddressHardFail: values['bind-address-hard-fail'],
    profiling: values.profiling,
    host: {
      oomScoreAdj: values['oom-score-adj'],
      conntrack: {
        maxPerCore: values['conntrack-max-per-core'],
        min: values['conntrack-min'],
        tcpEstablishedTimeoutMs: values['conntrack-tcp-timeout-established'],
        tcpCloseWaitTimeoutMs: values['conntrack-tcp-timeout-close-wait'],
        tcpBeLiberal: values['conntrack-tcp-be-liberal'],
        udpTimeoutMs: values['conntrack-udp-timeout'],
        udpStreamTimeoutMs: values['conntrack-udp-timeout-stream'],
      },
    },
    log,
    fields: effectiveFields(values),
  };
}

function toSource(values: SettingValues): SourceConfig {
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
