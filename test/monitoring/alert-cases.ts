/** The job name that `deploy/prometheus` gives the proxies. */
export const JOB = 'kube-userspace-proxy';

export interface AlertCase {
  readonly alert: string;
  readonly when: string;
  /** In the notation of `promtool test rules`, a value each minute. */
  readonly series: Readonly<Record<string, string>>;
  /** In which minute after the first value to look: the first one in which it fires, or one in which it does not. */
  readonly at: number;
  /** The labels of the alert that is expected besides its name, severity and job; `undefined`: none may fire. */
  readonly fires?: Readonly<Record<string, string>>;
}

const NODE = { instance: 'node-1' };
const of = (metric: string, ...labels: readonly string[]) => {
  return `${metric}{${[`job="${JOB}"`, 'instance="node-1"', ...labels].join(', ')}}`;
};
const WEB = ['namespace="shop"', 'service="web"', 'port="http"', 'protocol="TCP"'];
const webOf = (metric: string, ...labels: readonly string[]) => of(metric, ...WEB, ...labels);
const webWith = { namespace: 'shop', service: 'web', port: 'http' };
/** The labels of the series that all Service ports beyond the bound share. */
const OTHERS = ['namespace=""', 'service=""', 'port=""', 'protocol=""'];
const LAST_SYNC = of('kubeproxy_sync_proxy_rules_last_timestamp_seconds', 'ip_family="IPv4"');
const RESTORE_FAILURES = of('kubeproxy_sync_proxy_rules_iptables_restore_failures_total', 'ip_family="IPv4"');
const EXHAUSTED = 'reason="exhausted"';

function programming(within30s: string, within60s: string): Record<string, string> {
  const bucket = (le: string) => {
    return of('kubeproxy_network_programming_duration_seconds_bucket', 'ip_family="IPv4"', `le="${le}"`);
  };
  return { [bucket('30')]: within30s, [bucket('60')]: within60s, [bucket('+Inf')]: within60s };
}

/** In the order of the rules. */
export const ALERT_CASES: readonly AlertCase[] = [
  {
    alert: 'KubeUserspaceProxyDown',
    when: 'a target does not answer',
    series: { [of('up')]: '1x3 0x10' },
    at: 9,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyDown',
    when: 'there is no target',
    series: { 'up{job="another"}': '1x10' },
    at: 5,
    fires: {},
  },
  {
    alert: 'KubeUserspaceProxyDown',
    when: 'a target was away for a moment',
    series: { [of('up')]: '1x3 0x2 1x10' },
    at: 9,
  },
  {
    alert: 'KubeUserspaceProxyRulesStale',
    when: 'there has been no sync for 5 minutes',
    series: { [LAST_SYNC]: '0 60 120 120x10' },
    at: 8,
    fires: { ...NODE, ip_family: 'IPv4' },
  },
  {
    alert: 'KubeUserspaceProxyRulesStale',
    when: 'the last sync is never older than 170 s',
    series: { [LAST_SYNC]: '-170+60x20' },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyRestoreFailing',
    when: 'one run fails each minute',
    series: { [RESTORE_FAILURES]: '0+1x20' },
    at: 9,
    fires: { ...NODE, ip_family: 'IPv4' },
  },
  {
    alert: 'KubeUserspaceProxyRestoreFailing',
    when: 'two runs failed once',
    series: { [RESTORE_FAILURES]: '0x5 2x15' },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyApiServerStale',
    when: 'the API server has been away for 7 minutes',
    series: { [of('userspace_proxy_api_stale_seconds')]: '0+60x7' },
    at: 7,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyApiServerStale',
    when: 'changes are never missed for more than 4 minutes',
    series: { [of('userspace_proxy_api_stale_seconds')]: '240x20' },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyProgrammingSlow',
    when: 'a tenth of the changes takes more than 30 s',
    series: programming('0+9x40', '0+10x40'),
    at: 16,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyProgrammingSlow',
    when: 'one in a thousand does',
    series: programming('0+999x40', '0+1000x40'),
    at: 30,
  },
  {
    alert: 'KubeUserspaceProxyProgrammingSlow',
    when: 'nothing changes',
    series: programming('9x40', '10x40'),
    at: 30,
  },
  {
    alert: 'KubeUserspaceProxyServiceUnreachable',
    when: 'a tenth of the clients is turned away',
    series: {
      [webOf('userspace_proxy_turned_away_total', EXHAUSTED)]: '0+6x20',
      [webOf('userspace_proxy_connections_total')]: '0+60x20',
    },
    at: 6,
    fires: webWith,
  },
  {
    alert: 'KubeUserspaceProxyServiceUnreachable',
    when: 'one in a hundred is, and some because the last endpoint had just gone',
    series: {
      [webOf('userspace_proxy_turned_away_total', EXHAUSTED)]: '0+1x20',
      [webOf('userspace_proxy_turned_away_total', 'reason="no-endpoints"')]: '0+50x20',
      [webOf('userspace_proxy_connections_total')]: '0+100x20',
    },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyServiceUnreachable',
    when: 'the series of many Service ports falls as one of them goes',
    series: {
      [of('userspace_proxy_turned_away_total', ...OTHERS, EXHAUSTED)]: '1000-1x20',
      [of('userspace_proxy_connections_total', ...OTHERS)]: '1000-1x20',
    },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyEndpointsFailing',
    when: 'every fifth connection needs another endpoint',
    series: {
      [webOf('userspace_proxy_connect_retries_total')]: '0+12x40',
      [webOf('userspace_proxy_connections_total')]: '0+60x40',
    },
    at: 16,
    fires: webWith,
  },
  {
    alert: 'KubeUserspaceProxyEndpointsFailing',
    when: 'it did so for 10 minutes, as in a rollout',
    series: {
      [webOf('userspace_proxy_connect_retries_total')]: '0+12x8 96x32',
      [webOf('userspace_proxy_connections_total')]: '0+60x40',
    },
    at: 30,
  },
  {
    alert: 'KubeUserspaceProxyDescriptorsLow',
    when: 'nine in ten are in use',
    series: { [of('process_open_fds')]: '900x20', [of('process_max_fds')]: '1000x20' },
    at: 5,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyDescriptorsLow',
    when: 'seven in ten are in use',
    series: { [of('process_open_fds')]: '700x20', [of('process_max_fds')]: '1000x20' },
    at: 10,
  },
  {
    alert: 'KubeUserspaceProxyAcceptingPaused',
    when: 'accepting paused once',
    series: { [webOf('userspace_proxy_accept_pauses_total')]: '0x3 1x20' },
    at: 5,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyAcceptingPaused',
    when: 'that was 10 minutes ago',
    series: { [webOf('userspace_proxy_accept_pauses_total')]: '0x3 1x20' },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyUdpLimited',
    when: 'datagrams are dropped all the time',
    series: { [webOf('userspace_proxy_limited_total')]: '0+5x20' },
    at: 11,
    fires: { ...NODE, ...webWith },
  },
  {
    alert: 'KubeUserspaceProxyUdpLimited',
    when: 'some were dropped once',
    series: { [webOf('userspace_proxy_limited_total')]: '0x3 50x20' },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyEventLoopSlow',
    when: 'it is late by half a second all the time',
    series: { [of('nodejs_eventloop_lag_p99_seconds')]: '0.5x20' },
    at: 10,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyEventLoopSlow',
    when: 'it was for five minutes, as with ten thousand new Services',
    series: { [of('nodejs_eventloop_lag_p99_seconds')]: '0.5x5 0.01x20' },
    at: 15,
  },
  {
    alert: 'KubeUserspaceProxyRestarting',
    when: 'it starts every five minutes',
    series: { [of('process_start_time_seconds')]: '0x4 300x4 600x4 900x4 1200x4 1500x4' },
    at: 21,
    fires: NODE,
  },
  {
    alert: 'KubeUserspaceProxyRestarting',
    when: 'it was upgraded twice',
    series: { [of('process_start_time_seconds')]: '0x4 300x4 600x20' },
    at: 25,
  },
  {
    alert: 'KubeUserspaceProxyErrors',
    when: 'an error is logged',
    series: { [of('userspace_proxy_log_lines_total', 'level="error"')]: '0x3 1x30' },
    at: 5,
    fires: { ...NODE, level: 'error' },
  },
  {
    alert: 'KubeUserspaceProxyErrors',
    when: 'warnings are, and an error half an hour ago',
    series: {
      [of('userspace_proxy_log_lines_total', 'level="error"')]: '0x3 1x40',
      [of('userspace_proxy_log_lines_total', 'level="warn"')]: '0+1x40',
    },
    at: 35,
  },
];
