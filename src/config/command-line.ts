import { endpointName } from '../model/endpoint.ts';
import { collide } from './addresses.ts';
import type { CommandLine, Config, DetectLocal, LogConfig, SourceConfig } from './config.ts';
import { configurationFile, effectiveFields } from './configuration.ts';
import { type ReadDocuments, readConfigurationFile } from './configuration-file.ts';
import { formatDuration } from './duration.ts';
import { type Evaluated, evaluate, type FlagTexts, type Said } from './evaluate.ts';
import type { SettingValues } from './settings.ts';
import { UsageError } from './usage-error.ts';

/**
 * Turns the flags that were given into what is to be done. Never prints, exits or reads the environment: kubelet puts a
 * Service's name into variables of the Pod, so any prefix of ours could be taken. The file of `--config` is read through
 * `readDocuments`. Throws {@link UsageError}.
 */
export function configure(flags: FlagTexts, readDocuments: ReadDocuments): CommandLine {
  const configFile = flags.get('config')?.at(-1) || undefined;
  return toCommandLine(
    evaluate(flags, configFile === undefined ? undefined : readConfigurationFile(configFile, readDocuments)),
  );
}

function toCommandLine(evaluated: Evaluated): CommandLine {
  const { values, warnings } = evaluated;
  const log = toLogConfig(values);
  const path = values['write-config-to'];
  if (values.cleanup && path === '') return { kind: 'cleanup', iptablesMode: values['iptables-mode'], log };
  const config = toConfig(evaluated, log);
  if (path !== '') return { kind: 'write-config', path, text: configurationFile(config.fields) };
  if (values['init-only']) return { kind: 'init', machine: config.host, log };
  return { kind: 'run', config, warnings: [...warnings, ...withoutPods(evaluated, config)] };
}

/** How pods are to be told from other clients, and cannot be. */
function withoutPods({ values, said }: Evaluated, { detectLocal, clusterCidrs, source }: Config): readonly string[] {
  const mode = values['detect-local-mode'];
  const what = 'connections of pods are treated like those from outside';
  if (mode === 'ClusterCIDR' && clusterCidrs.length === 0) {
    return [
      `${said.nameOf('detect-local-mode')} ClusterCIDR needs ${said.nameOf('cluster-cidr')}; without it, ${what}`,
    ];
  }
  if (detectLocal.by === 'NodeCIDR' && source.kind === 'manifests') {
    return [`${said.nameOf('detect-local-mode')} NodeCIDR needs an API server; without it, ${what}`];
  }
  return [];
}

function toLogConfig(values: SettingValues): LogConfig {
  const format = values['log-format'];
  const isJson = format === 'auto' && values['logging-format'] === 'json';
  return { verbosity: values.v, format: isJson ? 'json' : format };
}

function toConfig({ values, said }: Evaluated, log: LogConfig): Config {
  const syncPeriodMs = values['iptables-sync-period'];
  const minSyncPeriodMs = values['iptables-min-sync-period'];
  if (minSyncPeriodMs > syncPeriodMs) {
    const [shortest, longest] = ['iptables-min-sync-period', 'iptables-sync-period'] as const;
    throw new UsageError(
      `${said.placeOf(shortest, longest)}${said.nameOf(shortest)} ${formatDuration(minSyncPeriodMs)}: ` +
        `must not exceed ${said.nameOf(longest)} ${formatDuration(syncPeriodMs)}`,
    );
  }
  const healthzAddress = values['healthz-bind-address'];
  const metricsAddress = values['metrics-bind-address'];
  if (healthzAddress && metricsAddress && collide(healthzAddress, metricsAddress)) {
    const [metrics, healthz] = ['metrics-bind-address', 'healthz-bind-address'] as const;
    throw new UsageError(
      `${said.placeOf(metrics, healthz)}${said.nameOf(metrics)} ${endpointName(metricsAddress)}: ` +
        `taken by ${said.nameOf(healthz)} ${endpointName(healthzAddress)}; give one of them another port`,
    );
  }
  const udpIdleTimeoutMs = values['udp-timeout'];
  const nodePortAddresses = values['nodeport-addresses'];
  return {
    configFile: values.config || undefined,
    source: toSource(values, said),
    bindAddress: values['bind-address'],
    proxyPortRange: values['proxy-port-range'],
    nodePortAddresses: nodePortAddresses.filter((one) => one !== 'primary'),
    nodePortsOnPrimary: nodePortAddresses.includes('primary'),
    externalIpAllowList: values['external-ip-allow-list'],
    clusterCidrs: values['cluster-cidr'],
    detectLocal: toDetectLocal(values, said),
    hostnameOverride: values['hostname-override'],
    engine: values.dataplane,
    workers: values.workers,
    dataPlane: {
      endpointDrainTimeoutMs: values['endpoint-drain-timeout'],
      tcpHalfOpenTimeoutMs: values['tcp-half-open-timeout'],
      tcpUserTimeoutMs: values['tcp-user-timeout'],
      udpIdleTimeoutMs,
      // A longer --udp-timeout alone must not be an error, so this one follows it.
      udpFirstReplyTimeoutMs: Math.max(udpIdleTimeoutMs, values['udp-first-reply-timeout']),
      udpMaxFlowsPerService: values['udp-max-flows-per-service'],
      udpMaxFlows: values['udp-max-flows'],
      affinityMaxClients: values['affinity-max-clients'],
      connectionMark: 2 ** values['connection-mark-bit'],
    },
    iptablesMode: values['iptables-mode'],
    iptablesSyncPeriodMs: syncPeriodMs,
    iptablesMinSyncPeriodMs: minSyncPeriodMs,
    healthzAddress,
    metricsAddress,
    bindAddressHardFail: values['bind-address-hard-fail'],
    profiling: values.profiling,
    controlSocket: values['control-socket'],
    host: {
      oomScoreAdj: values['oom-score-adj'],
      tcpTwReuse: values['tcp-tw-reuse'],
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

/** What needs a name without one is refused, as upstream does (`pkg/proxy/apis/config/validation`). */
function toDetectLocal(values: SettingValues, said: Said): DetectLocal {
  const mode = values['detect-local-mode'];
  if (mode === '' || mode === 'ClusterCIDR') return { by: 'ClusterCIDR' };
  if (mode === 'NodeCIDR') return { by: 'NodeCIDR' };
  const [name, end] =
    mode === 'BridgeInterface'
      ? (['pod-bridge-interface', ''] as const)
      : (['pod-interface-name-prefix', '+'] as const);
  if (values[name] !== '') return { by: 'interface', inInterface: values[name] + end };
  const place = said.placeOf('detect-local-mode');
  throw new UsageError(`${place}${said.nameOf('detect-local-mode')} ${mode}: needs ${said.nameOf(name)}`);
}

function toSource(values: SettingValues, said: Said): SourceConfig {
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
  const other = kubeconfig === undefined ? master && 'master' : 'kubeconfig';
  if (other) {
    throw new UsageError(
      `${said.placeOf(other)}--manifests and ${said.nameOf(other)} exclude each other: ` +
        'Services come from files or from an API server',
    );
  }
  return { kind: 'manifests', paths };
}
