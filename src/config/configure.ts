import { isDeepStrictEqual } from 'node:util';
import { type Cidr, familyOf, parseAddress, parseCidr, specialRangeWithin } from '../model/address.ts';
import { endpointName } from '../model/endpoint.ts';
import { formatDuration } from '../util/duration.ts';
import { show } from '../util/untrusted.ts';
import { ACCEPTED_FLAGS, ALLOW_EXTERNAL_IPS, FIELDS_WITHOUT_FLAG } from './accepted.ts';
import type { CommandLine, Config, DetectLocal, LogConfig, SourceConfig, StateConfig } from './config.ts';
import { configurationFile, effectiveFields, type Given, readConfiguration } from './configuration-file.ts';
import { FLAGS, SETTINGS, type SettingValues } from './flags.ts';
import type { AcceptedSetting, Setting } from './setting.ts';
import { UsageError } from './usage-error.ts';
import { collide, type NodePortAddresses } from './values.ts';

/**
 * Turns the flags that were given into what is to be done. Never prints, exits or reads the environment: kubelet puts a
 * Service's name into variables of the Pod, so any prefix could be taken. The file of `--config` is read
 * through `readFile`. Throws {@link UsageError}.
 */
export function configure(flags: FlagTexts, readFile: (path: string) => string): CommandLine {
  const configFile = flags.get('config')?.at(-1) || undefined;
  return toCommandLine(evaluate(flags, configFile === undefined ? undefined : readConfiguration(configFile, readFile)));
}

function toCommandLine(evaluated: Evaluated): CommandLine {
  const { values, warnings } = evaluated;
  const log = toLogConfig(values);
  const path = values['write-config-to'];
  if (values.cleanup && path === '') {
    return { kind: 'cleanup', iptablesMode: values['iptables-mode'], connectionMark: connectionMark(values), log };
  }
  const config = toConfig(evaluated, log);
  if (path !== '') return { kind: 'write-config', path, text: configurationFile(config.fields) };
  if (values['init-only']) return { kind: 'init', machine: config.host, log };
  return {
    kind: 'run',
    config,
    warnings: [
      ...warnings,
      ...withoutPods(evaluated, config),
      ...withoutFiles(evaluated, config),
      ...withoutState(evaluated, config),
    ],
  };
}

/** Warns when pods cannot be told from other clients. */
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

function connectionMark(values: SettingValues): number {
  return 2 ** values['connection-mark-bit'];
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
  const nodeEndpointPorts = values['node-endpoint-ports'];
  const source = toSource(values, said);
  return {
    configFile: values.config || undefined,
    source,
    state: toState(values),
    bindAddress: values['bind-address'],
    proxyPortRange: values['proxy-port-range'],
    ...toNodePortAddresses(nodePortAddresses),
    externalIpAllowList: toExternalIpAllowList(values),
    // The author of this node's files decides what they publish of it.
    nodeEndpointPorts: source.kind === 'manifests' && nodeEndpointPorts.length === 0 ? undefined : nodeEndpointPorts,
    clusterCidrs: values['cluster-cidr'],
    detectLocal: toDetectLocal(values, said),
    scheduler: values['ipvs-scheduler'],
    waitForEndpointsMs: values['wait-for-endpoints'],
    clientAddresses: { clientAddress: values['client-address'], masqueradeAll: values['masquerade-all'] },
    hostnameOverride: values['hostname-override'],
    engine: values.dataplane,
    workers: values.workers,
    dataPlane: {
      endpointDrainTimeoutMs: values['endpoint-drain-timeout'],
      tcpHalfOpenTimeoutMs: values['tcp-half-open-timeout'],
      tcpUserTimeoutMs: values['tcp-user-timeout'],
      udpIdleTimeoutMs,
      // Raised with --udp-timeout, so that a longer one alone is no error.
      udpFirstReplyTimeoutMs: Math.max(udpIdleTimeoutMs, values['udp-first-reply-timeout']),
      udpMaxFlowsPerService: values['udp-max-flows-per-service'],
      udpMaxFlows: values['udp-max-flows'],
      ejectAfter: values['eject-after'],
      ejectTimeMs: values['eject-time'],
      dialHedgeMs: values['dial-hedge'],
      affinityMaxClients: values['affinity-max-clients'],
      connectionMark: connectionMark(values),
      congestionControl: values['tcp-congestion-control'] || undefined,
    },
    capture: values.capture,
    iptablesMode: values['iptables-mode'],
    iptablesSyncPeriodMs: syncPeriodMs,
    iptablesMinSyncPeriodMs: minSyncPeriodMs,
    healthzAddress,
    metricsAddress,
    bindAddressHardFail: values['bind-address-hard-fail'],
    profiling: values.profiling,
    controlSocket: values['control-socket'],
    handOverSocket: values['hand-over-socket'],
    connectionLog: values['connection-log'],
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

function toExternalIpAllowList(values: SettingValues): Config['externalIpAllowList'] {
  const [, areAllowed] = values['feature-gates'].findLast(([name]) => name === ALLOW_EXTERNAL_IPS) ?? [];
  if (areAllowed === false) return [];
  const list = values['external-ip-allow-list'];
  return list.length === 0 ? undefined : list;
}

const LOOPBACK: readonly Cidr[] = ['127.0.0.0/8', '::1/128'].flatMap((text) => parseCidr(text) ?? []);

/** `all` leaves nothing for the others to add. */
function toNodePortAddresses(
  given: readonly NodePortAddresses[],
): Pick<Config, 'nodePortAddresses' | 'nodePortsOnPrimary'> {
  if (given.includes('all')) return { nodePortAddresses: [], nodePortsOnPrimary: false };
  const cidrs = given.flatMap((one) => {
    if (one === 'localhost') return LOOPBACK;
    return typeof one === 'string' ? [] : [one];
  });
  return { nodePortAddresses: cidrs, nodePortsOnPrimary: given.includes('primary') };
}

/** A mode that needs a name is refused without one, as upstream does (`pkg/proxy/apis/config/validation`). */
function toDetectLocal(values: SettingValues, said: Said): DetectLocal {
  const mode = values['detect-local-mode'];
  if (mode === '' || mode === 'ClusterCIDR') return { by: 'ClusterCIDR' };
  if (mode === 'NodeCIDR') return { by: 'NodeCIDR' };
  const isPrefix = mode !== 'BridgeInterface';
  const name = isPrefix ? 'pod-interface-name-prefix' : 'pod-bridge-interface';
  if (values[name] !== '') return { by: 'interface', inInterface: { name: values[name], isPrefix } };
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
      apiServers: values['api-servers'],
      apiServersFromCluster: values['api-servers-from-cluster'],
      qps: values['kube-api-qps'],
      burst: values['kube-api-burst'],
      contentType: values['kube-api-content-type'],
    };
  }
  const given = {
    kubeconfig: kubeconfig !== undefined,
    master: master !== undefined,
    'api-servers': values['api-servers'].length > 0,
    'api-servers-from-cluster': values['api-servers-from-cluster'],
  };
  const other = Object.entries(given).find(([, isGiven]) => isGiven)?.[0];
  if (other !== undefined) {
    throw new UsageError(
      `${said.placeOf(other)}--manifests and ${said.nameOf(other)} exclude each other: ` +
        'Services come from files or from an API server',
    );
  }
  return {
    kind: 'manifests',
    paths,
    clusterIpRanges: toClusterIpRanges(values, said),
    loopbackEndpoints: values['allow-loopback-endpoints'],
  };
}

function toState(values: SettingValues): StateConfig | undefined {
  const directory = values['state-dir'];
  if (directory === undefined) return undefined;
  return {
    directory,
    waitMs: values['state-wait'],
    maxAgeMs: values['state-max-age'],
    criSocket: values['cri-endpoint'],
  };
}

function toClusterIpRanges(values: SettingValues, said: Said): readonly Cidr[] {
  const name = 'service-cluster-ip-range';
  const ranges = values[name];
  for (const range of ranges) {
    const special = specialRangeWithin(range);
    if (special === undefined) continue;
    const overlap = `${range.network}/${range.prefixLength} overlaps ${special.range} (${special.reason})`;
    throw new UsageError(
      `${said.placeOf(name)}${said.nameOf(name)} ${overlap}: give a range that nothing else on the network uses`,
    );
  }
  if (new Set(ranges.map(({ network }) => familyOf(network))).size < ranges.length) {
    const given = ranges.map(({ network, prefixLength }) => `${network}/${prefixLength}`).join(',');
    throw new UsageError(`${said.placeOf(name)}${said.nameOf(name)} ${given}: give one CIDR of each address family`);
  }
  return ranges;
}

/** Warns of what is only for files. */
function withoutFiles({ values, said }: Evaluated, { source }: Config): readonly string[] {
  if (source.kind === 'manifests') return [];
  const given = [
    ...(values['service-cluster-ip-range'].length > 0 ? (['service-cluster-ip-range'] as const) : []),
    ...(values['allow-loopback-endpoints'] ? (['allow-loopback-endpoints'] as const) : []),
  ];
  return given.map((name) => `${said.nameOf(name)} has no effect without --manifests`);
}

/** Warns of what is only for a state on disk. */
function withoutState({ values, said }: Evaluated, { state, source }: Config): readonly string[] {
  if (values['cri-endpoint'] === undefined || (state !== undefined && source.kind === 'kubernetes')) return [];
  const [missing, without] = state === undefined ? ['state-dir', 'without'] : ['manifests', 'beside'];
  return [`${said.nameOf('cri-endpoint')} has no effect ${without} ${said.nameOf(missing)}`];
}

interface Evaluated {
  readonly values: SettingValues;
  /** A sentence for each kind of setting that has no effect. */
  readonly warnings: readonly string[];
  readonly said: Said;
}

/** For messages: where settings were given. */
interface Said {
  /** `--udp-timeout`, or the field of a file. */
  nameOf(name: string): string;
  /** File and line of the first of these that the file sets, with a colon and a blank; empty when it sets none. */
  placeOf(...names: readonly string[]): string;
}

/** Every text that was given to each flag, in order. */
export type FlagTexts = ReadonlyMap<string, readonly string[]>;

/** Turns texts into values; `file` is what `--config` says. Throws {@link UsageError}. */
function evaluate(flags: FlagTexts, file: ReadonlyMap<string, Given> | undefined): Evaluated {
  // With a file, flags count only for what no field says, or where upstream lets them.
  const given =
    file === undefined
      ? givenByFlags(withPorts(flags))
      : new Map([...file, ...[...givenByFlags(flags)].filter(([name]) => countsBesideFile(name))]);
  const values: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(SETTINGS)) values[name] = evaluateOne(setting, given.get(name));
  return {
    values: values as unknown as SettingValues,
    warnings: [...overruled(flags, file), ...withoutEffect(values, given)],
    said: {
      nameOf: (name) => given.get(name)?.name ?? (file && SETTINGS[name]?.field) ?? `--${name}`,
      placeOf: (...names) => names.map((name) => given.get(name)?.place).find(Boolean) ?? '',
    },
  };
}

function givenByFlags(flags: FlagTexts): ReadonlyMap<string, Given> {
  return new Map([...flags].map(([name, texts]) => [name, { texts, name: `--${name}`, place: '' }]));
}

/** A flag counts in spite of the file: upstream's rule for the name of the node and for everything about the log. */
export function isFlagFirst(field: string): boolean {
  return field === 'hostnameOverride' || field.startsWith('logging.');
}

function countsBesideFile(name: string): boolean {
  const { field } = SETTINGS[name] ?? {};
  // The ports are parts of addresses that have fields.
  return field === undefined ? name !== 'healthz-port' && name !== 'metrics-port' : isFlagFirst(field);
}

/** `--healthz-port` and `--metrics-port` as upstream's addressFromDeprecatedFlags takes them. */
function withPorts(flags: FlagTexts): FlagTexts {
  const completed = new Map(flags);
  for (const server of ['healthz', 'metrics'] as const) {
    const texts = flags.get(`${server}-port`);
    if (texts === undefined) continue;
    const port = Number(evaluateOne(FLAGS[`${server}-port`], { texts, name: `--${server}-port`, place: '' }));
    const name = `${server}-bind-address` as const;
    const address = parseAddress(flags.get(name)?.at(-1) ?? '');
    if (port === 0) completed.set(name, ['']);
    else if (address !== undefined) completed.set(name, [endpointName({ address, port })]);
  }
  return completed;
}

function evaluateOne({ parse, fallback }: Setting<unknown>, given: Given | undefined): unknown {
  if (given === undefined) return parse(fallback);
  try {
    return parse(given.texts);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(`${given.place}${given.name} ${show(given.texts.join(','))}: ${error.message}`);
  }
}

function overruled(flags: FlagTexts, file: ReadonlyMap<string, Given> | undefined): string[] {
  if (file === undefined) return [];
  const names = [...flags.keys()].filter((name) => !countsBesideFile(name)).map((name) => `--${name}`);
  return names.length === 0
    ? []
    : [`Flags that do not count because --config decides what they say: ${names.join(', ')}`];
}

const WITHOUT_EFFECT: readonly (readonly [name: string, setting: AcceptedSetting<unknown>])[] = Object.entries({
  ...ACCEPTED_FLAGS,
  ...FIELDS_WITHOUT_FLAG,
});

/** Files that kubeadm writes have a field for everything: only values other than the default are worth a warning. */
function withoutEffect(values: Readonly<Record<string, unknown>>, given: ReadonlyMap<string, Given>): string[] {
  const told = WITHOUT_EFFECT.flatMap(([name, { of, parse, fallback, isIgnored }]) => {
    const said = given.get(name);
    if (said === undefined || isDeepStrictEqual(values[name], parse(fallback))) return [];
    if (isIgnored !== undefined && !isIgnored(values[name])) return [];
    return [`${said.place}${said.name} (${of})`];
  });
  return told.length === 0 ? [] : [`Accepted, but without effect in this proxy: ${told.join(', ')}`];
}
