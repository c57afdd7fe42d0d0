import {
  type AcceptedSetting,
  BOOLEAN,
  type Kind,
  many,
  NANOSECONDS,
  one,
  pointer,
  QUANTITY,
  SWITCHES,
  TEXT,
  text,
  time,
  VERBOSITY_BY_FILE,
  whole,
} from './setting.ts';
import { UsageError } from './usage-error.ts';
import { cidr, duration, featureGate, MAX_INT32, positiveDuration, showCidr, verbosityOfFile } from './values.ts';

const IPTABLES = 'iptables mode';
const IPVS = 'ipvs mode';
const NFTABLES = 'nftables mode';
const WINDOWS = 'Windows';
const KLOG = 'klog';
const API = 'the API client of kube-proxy';

const DURATION = time(duration);
const POSITIVE_DURATION = time(positiveDuration);
const MASQUERADE_BIT = pointer(whole(0, 31));

/** Of KEP-5707: false leaves external IPs out. */
export const ALLOW_EXTERNAL_IPS = 'AllowServiceExternalIPs';

function ignored<T>(of: string, kind: Kind<T>, fallback: string, field?: string) {
  return one(kind, fallback, { of, ...(field !== undefined && { field }) });
}

/** Flags that kube-proxy has had since 1.20 and that have no effect here. */
export const ACCEPTED_FLAGS = {
  'kube-api-content-type': ignored(API, TEXT, 'application/vnd.kubernetes.protobuf', 'clientConnection.contentType'),
  'config-sync-period': ignored(API, POSITIVE_DURATION, '15m', 'configSyncPeriod'),
  'feature-gates': many(text(featureGate), {
    of: 'feature gates other than AllowServiceExternalIPs',
    field: 'featureGates',
    ...SWITCHES,
    isIgnored: (gates: readonly (readonly [name: string, on: boolean])[]) =>
      gates.some(([name]) => name !== ALLOW_EXTERNAL_IPS),
  }),
  'show-hidden-metrics-for-version': ignored('metrics of kube-proxy', TEXT, '', 'showHiddenMetricsForVersion'),
  'cleanup-ipvs': ignored(IPVS, BOOLEAN, 'true'),

  'iptables-masquerade-bit': ignored(IPTABLES, MASQUERADE_BIT, '14', 'iptables.masqueradeBit'),
  'iptables-localhost-nodeports': ignored(IPTABLES, BOOLEAN, 'true', 'iptables.localhostNodePorts'),

  'ipvs-exclude-cidrs': many(text(cidr, showCidr), { of: IPVS, field: 'ipvs.excludeCIDRs' }),
  'ipvs-strict-arp': ignored(IPVS, BOOLEAN, 'false', 'ipvs.strictARP'),
  'ipvs-sync-period': ignored(IPVS, POSITIVE_DURATION, '30s', 'ipvs.syncPeriod'),
  'ipvs-min-sync-period': ignored(IPVS, DURATION, '0s', 'ipvs.minSyncPeriod'),
  'ipvs-tcp-timeout': ignored(IPVS, DURATION, '0s', 'ipvs.tcpTimeout'),
  'ipvs-tcpfin-timeout': ignored(IPVS, DURATION, '0s', 'ipvs.tcpFinTimeout'),
  'ipvs-udp-timeout': ignored(IPVS, DURATION, '0s', 'ipvs.udpTimeout'),

  vmodule: many(text(verbosityOfFile), { of: KLOG, field: 'logging.vmodule', ...VERBOSITY_BY_FILE }),
  'log-flush-frequency': ignored(KLOG, NANOSECONDS, '5s', 'logging.flushFrequency'),
  'log-text-split-stream': ignored(KLOG, BOOLEAN, 'false', 'logging.options.text.splitStream'),
  'log-text-info-buffer-size': ignored(KLOG, QUANTITY, '0', 'logging.options.text.infoBufferSize'),
  'log-json-split-stream': ignored(KLOG, BOOLEAN, 'false', 'logging.options.json.splitStream'),
  'log-json-info-buffer-size': ignored(KLOG, QUANTITY, '0', 'logging.options.json.infoBufferSize'),
  'add-dir-header': ignored(KLOG, BOOLEAN, 'false'),
  alsologtostderr: ignored(KLOG, BOOLEAN, 'false'),
  'log-backtrace-at': ignored(KLOG, TEXT, ':0'),
  'log-dir': ignored(KLOG, TEXT, ''),
  'log-file': ignored(KLOG, TEXT, ''),
  'log-file-max-size': ignored(KLOG, whole(0, MAX_INT32), '1800'),
  logtostderr: ignored(KLOG, BOOLEAN, 'true'),
  'one-output': ignored(KLOG, BOOLEAN, 'false'),
  'skip-headers': ignored(KLOG, BOOLEAN, 'false'),
  'skip-log-headers': ignored(KLOG, BOOLEAN, 'false'),
  stderrthreshold: ignored(KLOG, TEXT, '2'),
  'boot-id-file': ignored('cAdvisor', TEXT, '/proc/sys/kernel/random/boot_id'),
  'machine-id-file': ignored('cAdvisor', TEXT, '/etc/machine-id,/var/lib/dbus/machine-id'),
} satisfies Record<string, AcceptedSetting<unknown>>;

/** What only a configuration file can say, by the path of its field. None of it has an effect here. */
export const FIELDS_WITHOUT_FLAG: Readonly<Record<string, AcceptedSetting<unknown>>> = Object.fromEntries([
  field(API, TEXT, '', 'clientConnection.acceptContentTypes'),
  field(NFTABLES, MASQUERADE_BIT, '14', 'nftables.masqueradeBit'),
  field(NFTABLES, BOOLEAN, 'false', 'nftables.masqueradeAll'),
  field(NFTABLES, POSITIVE_DURATION, '30s', 'nftables.syncPeriod'),
  field(NFTABLES, DURATION, '1s', 'nftables.minSyncPeriod'),
  field(NFTABLES, omitted(TEXT), '', 'nftables.tableName'),
  field(WINDOWS, TEXT, '', 'winkernel.networkName'),
  field(WINDOWS, TEXT, '', 'winkernel.sourceVip'),
  field(WINDOWS, BOOLEAN, 'false', 'winkernel.enableDSR'),
  field(WINDOWS, TEXT, '', 'winkernel.rootHnsEndpointName'),
  field(WINDOWS, BOOLEAN, 'false', 'winkernel.forwardHealthCheckVip'),
  field(WINDOWS, omitted(BOOLEAN), 'false', 'windowsRunAsService'),
  field('other proxies', omitted(text(noServiceProxyName)), '', 'serviceProxyName'),
]);

function field<T>(of: string, kind: Kind<T>, fallback: string, path: string) {
  return [path, ignored(of, kind, fallback, path)] as const;
}

/** For fields that upstream leaves out while they are empty, and that older kube-proxies do not know. */
function omitted<T>(kind: Kind<T>): Kind<T> {
  return { ...kind, show: () => undefined };
}

/** Asks for other Services than kube-proxy's, so it must not be accepted without effect. */
function noServiceProxyName(given: string): string {
  if (given !== '')
    throw new UsageError('only Services without the label service.kubernetes.io/service-proxy-name are served');
  return given;
}
