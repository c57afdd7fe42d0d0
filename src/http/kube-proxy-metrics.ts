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
  /** Endpoints are in use, so long after what changed them: a Pod, a Service. */
  networkProgrammed(sinceTriggerMs: number): void;
  /** The state has changed: counts the Service ports whose policy is Local and whose endpoints are all elsewhere. */
  stateChanged(delta: Pick<SnapshotDelta, 'upserted' | 'removed'>): void;
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

/** Those that hold rules of this program while it runs. */
const TABLES = ['nat', 'filter'];
/** Of `internalTrafficPolicy: Local` and `externalTrafficPolicy: Local`. */
const POLICIES = ['internal', 'external'] as const;
type Policy = (typeof POLICIES)[number];

export interface KubeProxyMetricsOptions {
  readonly registry: Registry;
  /** The families that are served from the start. */
  readonly families: readonly IpFamily[];
  readonly health: Pick<Health, 'lastUpdated'>;
  /** Services with changes, their own or of their endpoints, that are not handed on yet. */
  readonly pendingServices: () => number;
  readonly clock: Clock;
}

/**
 * kube-proxy's own metrics (`pkg/proxy/metrics/metrics.go`): its names, labels and buckets, so that dashboards and
 * alerts made for it work. Nothing depends on its help texts, so these are ours. Every series of a family exists as soon
 * as the family is served: dashboards list their instances by them.
 */
export class KubeProxyMetrics {
  readonly #clock: Clock;
  readonly #metrics: ReturnType<typeof register>;

  constructor({ families, ...options }: KubeProxyMetricsOptions) {
    this.#clock = options.clock;
    this.#metrics = register(options);
    for (const family of families) this.serve(family);
  }

  /** For the pipeline of this family. */
  of(ip_family: IpFamily): FamilyMetrics {
    const { sync, lastQueued, restoreFailures, rules, programming, noLocal, conntrack, changes } = this.#metrics;
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
      rulesInstalled: (table, { total, written }) => {
        rules.total.set({ ...labels, table }, total);
        rules.last.set({ ...labels, table }, written);
      },
      changed: (kind, count) => changes[kind].inc(count),
      networkProgrammed: (sinceTriggerMs) => programming.observe(labels, sinceTriggerMs / 1_000),
      stateChanged: ({ upserted, removed }) => {
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

  /** Creates the series of a family, from now on served. Alerts would take one that is not served for a stuck one. */
  serve(ip_family: IpFamily): void {
    const { served, sync, lastQueued, restoreFailures, rules, programming, noLocal, conntrack } = this.#metrics;
    served.add(ip_family);
    const labels = { ip_family };
    for (const histogram of [...Object.values(sync), programming, conntrack.duration]) histogram.zero(labels);
    for (const counter of [...Object.values(restoreFailures), conntrack.deleted]) counter.inc(labels, 0);
    for (const table of TABLES) for (const gauge of Object.values(rules)) gauge.set({ ...labels, table }, 0);
    for (const traffic_policy of POLICIES) noLocal.set({ ...labels, traffic_policy }, 0);
    lastQueued.set(labels, 0);
  }
}

/** Registers every metric; docs/metrics.md lists them in this order. */
function register({ registry, health, pendingServices }: Omit<KubeProxyMetricsOptions, 'families'>) {
  const registers = [registry];
  const served = new Set<IpFamily>();
  const metric = <L extends string>(name: string, help: string, ...labelNames: L[]) => {
    return { name: `kubeproxy_${name}`, help, labelNames, registers };
  };
  const histogram = (name: string, help: string, buckets = SYNC_BUCKETS) =>
    new Histogram({ ...metric(name, help, 'ip_family'), buckets });
  const sync = {
    any: histogram('sync_proxy_rules_duration_seconds', 'How long each sync of the rules took, failed ones too'),
    full: histogram(
      'sync_full_proxy_rules_duration_seconds',
      'How long each sync that compares all rules with the kernel took, failed ones too',
    ),
    partial: histogram(
      'sync_partial_proxy_rules_duration_seconds',
      'How long each sync that writes only what has changed took, failed ones too',
    ),
  };
  new Gauge({
    ...metric(
      'sync_proxy_rules_last_timestamp_seconds',
      'When the rules were last in sync, since 1970; 0 before the first time',
      'ip_family',
    ),
    collect() {
      for (const ip_family of served) this.set({ ip_family }, (health.lastUpdated(ip_family)?.wallMs ?? 0) / 1_000);
    },
  });
  const lastQueued = new Gauge(
    metric(
      'sync_proxy_rules_last_queued_timestamp_seconds',
      'When a sync of the rules was last asked for, since 1970',
      'ip_family',
    ),
  );
  const failures = 'restore_failures_total';
  const restoreFailures = {
    any: new Counter(
      metric(`sync_proxy_rules_iptables_${failures}`, 'Runs of iptables-restore that failed', 'ip_family'),
    ),
    partial: new Counter(
      metric(
        `sync_proxy_rules_iptables_partial_${failures}`,
        'Runs of iptables-restore that failed to write what had changed; everything was compared with the kernel then',
        'ip_family',
      ),
    ),
  };
  const rulesOf = (name: 'total' | 'last', help: string) =>
    new Gauge(metric(`sync_proxy_rules_iptables_${name}`, help, 'ip_family', 'table'));
  return {
    served,
    sync,
    lastQueued,
    restoreFailures,
    rules: {
      total: rulesOf('total', 'Rules of this program in the table'),
      last: rulesOf('last', 'Rules that the last sync has written to the table'),
    },
    programming: histogram(
      'network_programming_duration_seconds',
      'Time from a change in the cluster until its endpoints are in use here',
      PROGRAMMING_BUCKETS,
    ),
    noLocal: new Gauge(
      metric(
        // A gauge in spite of its name, as upstream's.
        'sync_proxy_rules_no_local_endpoints_total',
        'Service ports whose traffic policy (internal, external) is Local and whose endpoints are all on other nodes',
        'ip_family',
        'traffic_policy',
      ),
    ),
    conntrack: {
      duration: histogram(
        'conntrack_reconciler_sync_duration_seconds',
        'How long each search for stale conntrack entries took',
      ),
      deleted: new Counter(
        metric('conntrack_reconciler_deleted_entries_total', 'Stale conntrack entries that were deleted', 'ip_family'),
      ),
    },
    changes: {
      service: changeCounter('service', 'Services'),
      endpoint: changeCounter('endpoint', 'EndpointSlices or Endpoints'),
    },
    answers: { healthz: answerCounter('healthz'), livez: answerCounter('livez') },
  };

  /** With a gauge beside it: what is pending is known by Service, whichever kind of object has changed. */
  function changeCounter(kind: string, objects: string): Counter {
    const counter = new Counter(metric(`sync_proxy_rules_${kind}_changes_total`, `Changes of ${objects} seen`));
    new Gauge({
      ...metric(
        `sync_proxy_rules_${kind}_changes_pending`,
        'Services with changes, their own or of their endpoints, that are not handed on yet; the same for both kinds',
      ),
      collect() {
        this.set(pendingServices());
      },
    });
    return counter;
  }

  function answerCounter(kind: string): Counter<'code'> {
    const counter = new Counter(metric(`proxy_${kind}_total`, `Answers of /${kind}, by HTTP status`, 'code'));
    for (const code of [200, 503]) counter.inc({ code }, 0);
    return counter;
  }
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
