import { Counter, exponentialBuckets, Gauge, Histogram, linearBuckets, type Registry } from 'prom-client';
import type { IpFamily } from '../model/address.ts';
import type { FlowMetrics, SyncMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import type { ServicePort, SnapshotDelta } from '../model/service-port.ts';
import type { SyncResult } from '../model/view.ts';
import type { Clock } from '../util/clock.ts';
import type { Health } from './health.ts';

/** What the pipeline of one address family reports. */
export interface FamilyMetrics extends SyncMetrics, FlowMetrics {
  /** Objects whose change has been applied to the state since start. Families share the count. */
  changed(kind: 'service' | 'endpoint', count: number): void;
  /** The time from a change of a Pod or Service until its endpoints are in use. */
  networkProgrammed(sinceTriggerMs: number): void;
  /**
   * The state has changed: counts the Service ports whose policy is Local and whose endpoints are all elsewhere, and
   * the parts of Services that are left out.
   */
  stateChanged(delta: Pick<SnapshotDelta, 'upserted' | 'removed' | 'unserved' | 'refused'>): void;
  /** How the last sync of the rules ended. */
  lastSync(): SyncResult | undefined;
}

const SYNC_BUCKETS = exponentialBuckets(0.001, 2, 15);

/** 0.25 s, 0.5 s, each second up to a minute, each five up to two, each thirty up to five. */
const PROGRAMMING_BUCKETS = [
  ...linearBuckets(0.25, 0.25, 2),
  ...linearBuckets(1, 1, 59),
  ...linearBuckets(60, 5, 12),
  ...linearBuckets(120, 30, 7),
];

/** Of `internalTrafficPolicy: Local` and `externalTrafficPolicy: Local`. */
const POLICIES = ['internal', 'external'] as const;
type Policy = (typeof POLICIES)[number];

export interface KubeProxyMetricsOptions {
  readonly registry: Registry;
  /** The families that are served from the start. */
  readonly families: readonly IpFamily[];
  /** Those that hold rules of this program while it runs. */
  readonly tables: readonly string[];
  readonly health: Pick<Health, 'lastUpdated'>;
  /** Services with changes, their own or of their endpoints, that are not handed on yet. */
  readonly pendingServices: () => number;
  readonly clock: Clock;
}

/**
 * kube-proxy's own metrics (`pkg/proxy/metrics/metrics.go`): its names, labels and buckets, so that dashboards and
 * alerts made for it work; and this program's own of the same pipelines. Every series of a family exists as soon as the
 * family is served: dashboards list their instances by them.
 */
export class KubeProxyMetrics {
  readonly #clock: Clock;
  readonly #metrics: ReturnType<typeof register>;
  readonly #tables: readonly string[];

  constructor({ families, tables, ...options }: KubeProxyMetricsOptions) {
    this.#tables = tables;
    this.#clock = options.clock;
    this.#metrics = register(options);
    for (const family of families) this.serve(family);
  }

  /** For the pipeline of this family. */
  of(ip_family: IpFamily): FamilyMetrics {
    const { sync, lastQueued, restoreFailures, rules, programming, noLocal, conntrack, changes, partsLeftOut } =
      this.#metrics;
    const labels = { ip_family };
    const lacking: Readonly<Record<Policy, Set<ServicePortName>>> = { internal: new Set(), external: new Set() };
    let lastSync: SyncResult | undefined;
    return {
      changesQueued: () => lastQueued.set(labels, this.#clock.wallNow() / 1_000),
      syncDone: ({ kind, durationMs, err }) => {
        lastSync = { at: this.#clock.wallNow(), durationMs, ...(err !== undefined && { err }) };
        sync.any.observe(labels, durationMs / 1_000);
        sync[kind].observe(labels, durationMs / 1_000);
      },
      lastSync: () => lastSync,
      restoreFailed: (kind) => {
        restoreFailures.any.inc(labels);
        if (kind === 'partial') restoreFailures.partial.inc(labels);
      },
      rulesInstalled: (table, { total, written, leftOut }) => {
        rules.total.set({ ...labels, table }, total);
        rules.last.set({ ...labels, table }, written);
        rules.leftOut.set({ ...labels, table }, leftOut);
      },
      changed: (kind, count) => changes[kind].inc(count),
      networkProgrammed: (sinceTriggerMs) => programming.observe(labels, sinceTriggerMs / 1_000),
      stateChanged: ({ upserted, removed, unserved, refused }) => {
        partsLeftOut.inc(labels, unserved.length + refused.length);
        for (const traffic_policy of POLICIES) {
          const names = lacking[traffic_policy];
          for (const name of removed) names.delete(name);
          for (const port of upserted) {
            if (lacksLocal(port, traffic_policy)) names.add(port.name);
            else names.delete(port.name);
          }
          noLocal.set({ ...labels, traffic_policy }, names.size);
        }
      },
      conntrackReconciled: (durationMs, deletedEntries) => {
        conntrack.duration.observe(labels, durationMs / 1_000);
        conntrack.deleted.inc(labels, deletedEntries);
      },
    };
  }

  healthAnswered(kind: 'healthz' | 'livez', code: 200 | 503): void {
    this.#metrics.answers[kind].inc({ code });
  }

  /** Creates the series of a family that is served from now on. To alerts, one that is not served would look stuck. */
  serve(ip_family: IpFamily): void {
    const { served, sync, lastQueued, restoreFailures, rules, programming, noLocal, conntrack, partsLeftOut } =
      this.#metrics;
    served.add(ip_family);
    const labels = { ip_family };
    for (const histogram of [...Object.values(sync), programming, conntrack.duration]) histogram.zero(labels);
    for (const counter of [...Object.values(restoreFailures), conntrack.deleted, partsLeftOut]) counter.inc(labels, 0);
    for (const table of this.#tables) for (const gauge of Object.values(rules)) gauge.set({ ...labels, table }, 0);
    for (const traffic_policy of POLICIES) noLocal.set({ ...labels, traffic_policy }, 0);
    lastQueued.set(labels, 0);
  }
}

const PENDING =
  'Services with changes, their own or of their endpoints, that are not handed on yet; the same for both kinds';

/** Nothing depends on kube-proxy's help texts, so these are new. */
const HELP = {
  sync_proxy_rules_duration_seconds: 'How long each sync of the rules took, failed ones too',
  sync_full_proxy_rules_duration_seconds:
    'How long each sync that compares all rules with the kernel took, failed ones too',
  sync_partial_proxy_rules_duration_seconds:
    'How long each sync that writes only what has changed took, failed ones too',
  sync_proxy_rules_last_timestamp_seconds: 'When the rules were last in sync, since 1970; 0 before the first time',
  sync_proxy_rules_last_queued_timestamp_seconds: 'When a sync of the rules was last asked for, since 1970',
  sync_proxy_rules_iptables_restore_failures_total: 'Runs of iptables-restore that failed',
  sync_proxy_rules_iptables_partial_restore_failures_total:
    'Runs of iptables-restore that failed to write what had changed; everything was compared with the kernel then',
  sync_proxy_rules_iptables_total: 'Rules of this program in the table',
  sync_proxy_rules_iptables_last: 'Rules that the last sync has written to the table',
  network_programming_duration_seconds: 'Time from a change in the cluster until its endpoints are in use here',
  // A gauge in spite of its name, as upstream's.
  sync_proxy_rules_no_local_endpoints_total:
    'Service ports whose traffic policy (internal, external) is Local and whose endpoints are all on other nodes',
  conntrack_reconciler_sync_duration_seconds: 'How long each search for stale conntrack entries took',
  conntrack_reconciler_deleted_entries_total: 'Stale conntrack entries that were deleted',
  sync_proxy_rules_service_changes_total: 'Changes of Services seen',
  sync_proxy_rules_service_changes_pending: PENDING,
  sync_proxy_rules_endpoint_changes_total: 'Changes of EndpointSlices or Endpoints seen',
  sync_proxy_rules_endpoint_changes_pending: PENDING,
  proxy_healthz_total: 'Answers of /healthz, by HTTP status',
  proxy_livez_total: 'Answers of /livez, by HTTP status',
} as const;

/** Registers every metric; docs/metrics.md lists them in this order. */
function register({ registry, health, pendingServices }: Omit<KubeProxyMetricsOptions, 'families' | 'tables'>) {
  const served = new Set<IpFamily>();
  const metric = <L extends string>(name: keyof typeof HELP, ...labelNames: L[]) => {
    return { name: `kubeproxy_${name}`, help: HELP[name], labelNames, registers: [registry] };
  };
  const histogram = (name: keyof typeof HELP, buckets = SYNC_BUCKETS) =>
    new Histogram({ ...metric(name, 'ip_family'), buckets });
  const counter = (name: keyof typeof HELP) => new Counter(metric(name, 'ip_family'));
  /** With a gauge beside it: what is pending is known by Service, whichever kind of object has changed. */
  const changes = (kind: 'service' | 'endpoint') => {
    const seen = new Counter(metric(`sync_proxy_rules_${kind}_changes_total`));
    new Gauge({
      ...metric(`sync_proxy_rules_${kind}_changes_pending`),
      collect() {
        this.set(pendingServices());
      },
    });
    return seen;
  };
  const answers = (kind: 'healthz' | 'livez') => {
    const answered = new Counter(metric(`proxy_${kind}_total`, 'code'));
    for (const code of [200, 503]) answered.inc({ code }, 0);
    return answered;
  };
  const sync = {
    any: histogram('sync_proxy_rules_duration_seconds'),
    full: histogram('sync_full_proxy_rules_duration_seconds'),
    partial: histogram('sync_partial_proxy_rules_duration_seconds'),
  };
  new Gauge({
    ...metric('sync_proxy_rules_last_timestamp_seconds', 'ip_family'),
    collect() {
      for (const ip_family of served) this.set({ ip_family }, (health.lastUpdated(ip_family)?.wallMs ?? 0) / 1_000);
    },
  });
  return {
    served,
    sync,
    lastQueued: new Gauge(metric('sync_proxy_rules_last_queued_timestamp_seconds', 'ip_family')),
    restoreFailures: {
      any: counter('sync_proxy_rules_iptables_restore_failures_total'),
      partial: counter('sync_proxy_rules_iptables_partial_restore_failures_total'),
    },
    rules: {
      total: new Gauge(metric('sync_proxy_rules_iptables_total', 'ip_family', 'table')),
      last: new Gauge(metric('sync_proxy_rules_iptables_last', 'ip_family', 'table')),
      leftOut: new Gauge({
        name: 'userspace_proxy_rules_left_out',
        help: 'Rules that are left out because the kernel refuses them',
        labelNames: ['ip_family', 'table'],
        registers: [registry],
      }),
    },
    partsLeftOut: new Counter({
      name: 'userspace_proxy_service_parts_left_out_total',
      help: 'Parts of Services that are not served: refused endpoints and external IPs, SCTP ports, what is beyond a limit',
      labelNames: ['ip_family'],
      registers: [registry],
    }),
    programming: histogram('network_programming_duration_seconds', PROGRAMMING_BUCKETS),
    noLocal: new Gauge(metric('sync_proxy_rules_no_local_endpoints_total', 'ip_family', 'traffic_policy')),
    conntrack: {
      duration: histogram('conntrack_reconciler_sync_duration_seconds'),
      deleted: counter('conntrack_reconciler_deleted_entries_total'),
    },
    changes: { service: changes('service'), endpoint: changes('endpoint') },
    answers: { healthz: answers('healthz'), livez: answers('livez') },
  };
}

/**
 * Whether the endpoint set that takes this traffic is empty only because of its policy (upstream
 * `pkg/proxy/iptables/proxier.go`, serviceNoLocalEndpoints).
 */
function lacksLocal(port: ServicePort, policy: Policy): boolean {
  const { local, nodePort, externalIPs, loadBalancerIPs } = port;
  const hasTraffic = policy === 'internal' || nodePort > 0 || externalIPs.length > 0 || loadBalancerIPs.length > 0;
  return hasTraffic && (local?.[policy] ? local : port).onlyElsewhere === true;
}
