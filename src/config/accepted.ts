import { cidr, showCidr } from './cidr.ts';
import {
  BOOLEAN,
  DURATION,
  type FieldType,
  NANOSECONDS,
  POINTER_NUMBER,
  QUANTITY,
  SWITCHES,
  TEXT,
  texts,
  VERBOSITY_BY_FILE,
} from './field-types.ts';
import { type AcceptedSetting, at, list, type Setting, single } from './setting.ts';
import { UsageError } from './usage-error.ts';
import {
  anyText,
  boolean,
  duration,
  featureGate,
  integer,
  MAX_INT32,
  positiveDuration,
  quantity,
  verbosityOfFile,
} from './values.ts';

const IPTABLES = { of: 'iptables mode' };
const IPVS = { of: 'ipvs mode' };
const NFTABLES = { of: 'nftables mode' };
const WINDOWS = { of: 'Windows' };
const KLOG = { of: 'klog' };
const API = { of: 'the API client of kube-proxy' };

function flagFirst<T>(path: string, type: FieldType<T>) {
  return { field: { ...at(path, type), flagWins: true } } as const;
}

/** Flags that kube-proxy has had since 1.20 and that have no effect here. */
export const ACCEPTED_FLAGS = {
  'kube-api-content-type': single('application/vnd.kubernetes.protobuf', anyText, {
    ...API,
    field: at('clientConnection.contentType', TEXT),
  }),
  'config-sync-period': single('15m', positiveDuration, { ...API, field: at('configSyncPeriod', DURATION) }),
  'feature-gates': list(featureGate, { of: 'feature gates', field: at('featureGates', SWITCHES) }),
  'show-hidden-metrics-for-version': single('', anyText, {
    of: 'metrics of kube-proxy',
    field: at('showHiddenMetricsForVersion', TEXT),
  }),
  'cleanup-ipvs': single('true', boolean, { ...IPVS, isSwitch: true }),

  'masquerade-all': single('false', boolean, {
    ...IPTABLES,
    isSwitch: true,
    field: at('iptables.masqueradeAll', BOOLEAN),
  }),
  'iptables-masquerade-bit': single('14', integer(0, 31), {
    ...IPTABLES,
    field: at('iptables.masqueradeBit', POINTER_NUMBER),
  }),
  'iptables-localhost-nodeports': single('true', boolean, {
    ...IPTABLES,
    isSwitch: true,
    field: at('iptables.localhostNodePorts', BOOLEAN),
  }),

  'ipvs-scheduler': single('', anyText, { ...IPVS, field: at('ipvs.scheduler', TEXT) }),
  'ipvs-exclude-cidrs': list(cidr, { ...IPVS, field: at('ipvs.excludeCIDRs', texts(showCidr)) }),
  'ipvs-strict-arp': single('false', boolean, { ...IPVS, isSwitch: true, field: at('ipvs.strictARP', BOOLEAN) }),
  'ipvs-sync-period': single('30s', positiveDuration, { ...IPVS, field: at('ipvs.syncPeriod', DURATION) }),
  'ipvs-min-sync-period': single('0s', duration, { ...IPVS, field: at('ipvs.minSyncPeriod', DURATION) }),
  'ipvs-tcp-timeout': single('0s', duration, { ...IPVS, field: at('ipvs.tcpTimeout', DURATION) }),
  'ipvs-tcpfin-timeout': single('0s', duration, { ...IPVS, field: at('ipvs.tcpFinTimeout', DURATION) }),
  'ipvs-udp-timeout': single('0s', duration, { ...IPVS, field: at('ipvs.udpTimeout', DURATION) }),

  vmodule: list(verbosityOfFile, { ...KLOG, ...flagFirst('logging.vmodule', VERBOSITY_BY_FILE) }),
  'log-flush-frequency': single('5s', duration, { ...KLOG, ...flagFirst('logging.flushFrequency', NANOSECONDS) }),
  'log-text-split-stream': single('false', boolean, {
    ...KLOG,
    isSwitch: true,
    ...flagFirst('logging.options.text.splitStream', BOOLEAN),
  }),
  'log-text-info-buffer-size': single('0', quantity, {
    ...KLOG,
    ...flagFirst('logging.options.text.infoBufferSize', QUANTITY),
  }),
  'log-json-split-stream': single('false', boolean, {
    ...KLOG,
    isSwitch: true,
    ...flagFirst('logging.options.json.splitStream', BOOLEAN),
  }),
  'log-json-info-buffer-size': single('0', quantity, {
    ...KLOG,
    ...flagFirst('logging.options.json.infoBufferSize', QUANTITY),
  }),
  'add-dir-header': single('false', boolean, { ...KLOG, isSwitch: true }),
  alsologtostderr: single('false', boolean, { ...KLOG, isSwitch: true }),
  'log-backtrace-at': single(':0', anyText, KLOG),
  'log-dir': single('', anyText, KLOG),
  'log-file': single('', anyText, KLOG),
  'log-file-max-size': single('1800', integer(0, MAX_INT32), KLOG),
  logtostderr: single('true', boolean, { ...KLOG, isSwitch: true }),
  'one-output': single('false', boolean, { ...KLOG, isSwitch: true }),
  'skip-headers': single('false', boolean, { ...KLOG, isSwitch: true }),
  'skip-log-headers': single('false', boolean, { ...KLOG, isSwitch: true }),
  stderrthreshold: single('2', anyText, KLOG),
  'boot-id-file': single('/proc/sys/kernel/random/boot_id', anyText, { of: 'cAdvisor' }),
  'machine-id-file': single('/etc/machine-id,/var/lib/dbus/machine-id', anyText, { of: 'cAdvisor' }),
} satisfies Record<string, AcceptedSetting<unknown>>;

/** What only a configuration file can say, by the path of its field; without effect here, all of it. */
export const FIELDS_WITHOUT_FLAG = {
  'clientConnection.acceptContentTypes': single('', anyText, {
    ...API,
    field: at('clientConnection.acceptContentTypes', TEXT),
  }),
  'nftables.masqueradeBit': single('14', integer(0, 31), {
    ...NFTABLES,
    field: at('nftables.masqueradeBit', POINTER_NUMBER),
  }),
  'nftables.masqueradeAll': single('false', boolean, { ...NFTABLES, field: at('nftables.masqueradeAll', BOOLEAN) }),
  'nftables.syncPeriod': single('30s', positiveDuration, { ...NFTABLES, field: at('nftables.syncPeriod', DURATION) }),
  'nftables.minSyncPeriod': single('1s', duration, { ...NFTABLES, field: at('nftables.minSyncPeriod', DURATION) }),
  'nftables.tableName': single('', anyText, { ...NFTABLES, field: at('nftables.tableName', omitted(TEXT)) }),
  'winkernel.networkName': single('', anyText, { ...WINDOWS, field: at('winkernel.networkName', TEXT) }),
  'winkernel.sourceVip': single('', anyText, { ...WINDOWS, field: at('winkernel.sourceVip', TEXT) }),
  'winkernel.enableDSR': single('false', boolean, { ...WINDOWS, field: at('winkernel.enableDSR', BOOLEAN) }),
  'winkernel.rootHnsEndpointName': single('', anyText, {
    ...WINDOWS,
    field: at('winkernel.rootHnsEndpointName', TEXT),
  }),
  'winkernel.forwardHealthCheckVip': single('false', boolean, {
    ...WINDOWS,
    field: at('winkernel.forwardHealthCheckVip', BOOLEAN),
  }),
  windowsRunAsService: single('false', boolean, { ...WINDOWS, field: at('windowsRunAsService', omitted(BOOLEAN)) }),
  serviceProxyName: single('', noServiceProxyName, {
    of: 'other proxies',
    field: at('serviceProxyName', omitted(TEXT)),
  }),
} satisfies Record<string, Setting<unknown> & { readonly of: string }>;

/** For fields that upstream leaves out while they are empty, and that no kube-proxy before them knows. */
function omitted<T>(type: FieldType<T>): FieldType<T> {
  return { read: type.read, show: () => undefined };
}

/** To serve other Services than those meant for kube-proxy is no setting to pass over. */
function noServiceProxyName(text: string): string {
  if (text !== '')
    throw new UsageError('only Services without the label service.kubernetes.io/service-proxy-name are served');
  return text;
}
