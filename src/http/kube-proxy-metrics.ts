import { Counter, exponentialBuckets, Gauge, Histogram, linearBuckets, type Registry } from 'prom-client';
import type { IpFamily } from '../model/address.ts';
import type { FlowMetrics, SyncMetrics } from '../model/metrics.ts';
import type { SyncResult } from '../model/view.ts';
import type { Clock } from '../util/clock.ts';
import type { Health } from './health.ts';

/** Of `internalTrafficPolicy: Local` or `externalTrafficPolicy: Local`. */
export type TrafficPolicy = 'internal' | 'external';

/** What the pipeline of one address family reports. */
export interface FamilyMetrics extends SyncMetrics, FlowMetrics {
  /** Objects whose change has been applied to the state since start. Families share the count. */
  changed(kind: 'service' | 'endpoint', count: number): void;
  /** Endpoints are in use, so long after what changed them: a Pod, a Service. */
  networkProgrammed(sinceTriggerMs: number): void;
  /** Service ports whose policy is Local and whose endpoints are all on other nodes. */
  noLocalEndpoints(policy: TrafficPolicy, servicePorts: number): void;
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

const FAMILY = 'ip_family';
const POLICY = 'traffic_policy';
const TABLE = 'table';
/** Those that hold rules of this program while it runs. */
const TABLES = ['nat', 'filter'];

/**
 * kube-proxy's own metrics (`pkg/proxy/metrics/metrics.go`): its names, labels and buckets, so that dashboards and
 * alerts made for it work; nothing depends on its help texts, so these are ours. Every series of a family is there as soon as
 * the family is served: dashboards list their instances by them.
 */
export class KubeProxyMetrics {
  readonly #clock: Clock;
  readonly #served = new Set<IpFamily>();
  readonly #syncDuration: Histogram<typeof FAMILY>;
  readonly #syncDurations: Readonly<Record<'full' | 'partial', Histogram<typeof FAMILY>>>;
  readonly #lastQueued: Gauge<typeof FAMILY>;
  readonly #restoreFailures: Counter<typeof FAMILY>;
  readonly #partialRestoreFailures: Counter<typeof FAMILY>;
  readonly #rules: Readonly<Record<'total' | 'last', Gauge<typeof FAMILY | typeof TABLE>>>;
  readonly #programming: Histogram<typeof FAMILY>;
  readonly #noLocalEndpoints: Gauge<typeof FAMILY | typeof POLICY>;
  readonly #conntrackDuration: Histogram<typeof FAMILY>;
  readonly #conntrackDeleted: Counter<typeof FAMILY>;
  readonly #changes: Readonly<Record<'service' | 'endpoint', Counter>>;
  readonly #answers: Readonly<Record<'healthz' | 'livez', Counter<'code'>>>;

  constructor({
    registry,
    families,
    health,
    pendingServices,
    clock,
  }: {
    readonly registry: Registry;
    /** The families that are served from the start. */
    readonly families: readonly IpFamily[];
    readonly health: Pick<Health, 'lastUpdated'>;
    /** Services whose changes, or those of their endpoints, are not handed on yet. */
    readonly pendingServices: () => number;
    readonly clock: Clock;
  }) {
    this.#clock = clock;
    const registers = [registry];
    const served = this.#served;
    const byFamily = { labelNames: [FAMILY] as const, registers };
    this.#syncDuration = new Histogram({
      name: 'kubeproxy_sync_proxy_rules_duration_seconds',
      help: 'How long each sync of the rules took, failed ones too',
      buckets: SYNC_BUCKETS,
      ...byFamily,
    });
    const durationOf = (kind: 'full' | 'partial', what: string) =>
      new Histogram({
        name: `kubeproxy_sync_${kind}_proxy_rules_duration_seconds`,
        help: `How long each sync that ${what} took, failed ones too`,
        buckets: SYNC_BUCKETS,
        ...byFamily,
      });
    this.#syncDurations = {
      full: durationOf('full', 'compares all rules with the kernel'),
      partial: durationOf('partial', 'writes only what has changed'),
    };
    new Gauge({
      name: 'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
      help: 'When the rules were last in sync, since 1970; 0 before the first time',
      ...byFamily,
      collect() {
        for (const ip_family of served) {
          this.set({ ip_family }, (health.lastUpdated(ip_family)?.wallMs ?? 0) / 1_000);
        }
      },
    });
    this.#lastQueued = new Gauge({
      name: 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds',
      help: 'When a sync of the rules was last asked for, since 1970',
      ...byFamily,
    });
    this.#restoreFailures = new Counter({
      name: 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
      help: 'Runs of iptables-restore that failed',
      ...byFamily,
    });
    this.#partialRestoreFailures = new Counter({
      name: 'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total',
      help: 'Runs of iptables-restore that failed to write what had changed; everything was compared with the kernel then',
      ...byFamily,
    });
    const rulesOf = (name: 'total' | 'last', help: string) =>
      new Gauge({
        name: `kubeproxy_sync_proxy_rules_iptables_${name}`,
        help,
        labelNames: [FAMILY, TABLE] as const,
        registers,
      });
    this.#rules = {
      total: rulesOf('total', 'Rules of this program in the table'),
      last: rulesOf('last', 'Rules that the last sync has written to the table'),
    };
    this.#programming = new Histogram({
      name: 'kubeproxy_network_programming_duration_seconds',
      help: 'Time from a change in the cluster until its endpoints are in use here',
      buckets: PROGRAMMING_BUCKETS,
      ...byFamily,
    });
    this.#noLocalEndpoints = new Gauge({
      // A gauge in spite of its name, as upstream's.
      name: 'kubeproxy_sync_proxy_rules_no_local_endpoints_total',
      help: 'Service ports whose traffic policy (internal, external) is Local and whose endpoints are all on other nodes',
      labelNames: [FAMILY, POLICY],
      registers,
    });
    this.#conntrackDuration = new Histogram({
      name: 'kubeproxy_conntrack_reconciler_sync_duration_seconds',
      help: 'How long each search for stale conntrack entries took',
      buckets: SYNC_BUCKETS,
      ...byFamily,
    });
    this.#conntrackDeleted = new Counter({
      name: 'kubeproxy_conntrack_reconciler_deleted_entries_total',
      help: 'Stale conntrack entries that were deleted',
      ...byFamily,
    });
    this.#changes = {
      service: changeCounter('service', { registers, pendingServices }),
      endpoint: changeCounter('endpoint', { registers, pendingServices }),
    };
    this.#answers = {
      healthz: answerCounter('healthz', registers),
      livez: answerCounter('livez', registers),
    };
    for (const family of families) this.serve(family);
  }

  of(family: IpFamily): FamilyMetrics {
    const labels = { [FAMILY]: family };
    let lastSync: SyncResult | undefined;
    return {
      lastSync: () => lastSync,
      changesQueued: () => this.#lastQueued.set(labels, this.#clock.wallNow() / 1_000),
      syncDone: ({ kind, durationMs, err }) => {
        lastSync = { at: this.#clock.wallNow(), durationMs, ...(err !== undefined && { err }) };
        this.#syncDuration.observe(labels, durationMs / 1_000);
        this.#syncDurations[kind].observe(labels, durationMs / 1_000);
      },
      restoreFailed: (kind) => {
        this.#restoreFailures.inc(labels);
        if (kind === 'partial') this.#partialRestoreFailures.inc(labels);
      },
      rulesInstalled: (table, { total, written }) => {
        this.#rules.total.set({ ...labels, [TABLE]: table }, total);
        this.#rules.last.set({ ...labels, [TABLE]: table }, written);
      },
      changed: (kind, count) => this.#changes[kind].inc(count),
      networkProgrammed: (sinceTriggerMs) => this.#programming.observe(labels, sinceTriggerMs / 1_000),
      noLocalEndpoints: (policy, servicePorts) =>
        this.#noLocalEndpoints.set({ ...labels, [POLICY]: policy }, servicePorts),
      conntrackReconciled: (durationMs, deletedEntries) => {
        this.#conntrackDuration.observe(labels, durationMs / 1_000);
        this.#conntrackDeleted.inc(labels, deletedEntries);
      },
    };
  }

  healthAnswered(kind: 'healthz' | 'livez', code: 200 | 503): void {
    this.#answers[kind].inc({ code });
  }

  /** Shows what there is of a family before anything happens. Alerts would take one that is not served for a stuck one. */
  serve(ip_family: IpFamily): void {
    this.#served.add(ip_family);
    const labels = { ip_family };
    const { full, partial } = this.#syncDurations;
    for (const histogram of [this.#syncDuration, full, partial, this.#programming, this.#conntrackDuration]) {
      histogram.zero(labels);
    }
    for (const counter of [this.#restoreFailures, this.#partialRestoreFailures, this.#conntrackDeleted]) {
      counter.inc(labels, 0);
    }
    for (const table of TABLES) {
      for (const gauge of Object.values(this.#rules)) gauge.set({ ...labels, [TABLE]: table }, 0);
    }
    this.#lastQueued.set(labels, 0);
    for (const policy of ['internal', 'external']) this.#noLocalEndpoints.set({ ...labels, [POLICY]: policy }, 0);
  }
}

/** With a gauge beside it: what is pending is known by Service, whichever kind of object has changed. */
function changeCounter(
  kind: 'service' | 'endpoint',
  { registers, pendingServices }: { readonly registers: Registry[]; readonly pendingServices: () => number },
): Counter {
  const counter = new Counter({
    name: `kubeproxy_sync_proxy_rules_${kind}_changes_total`,
    help: `Changes of ${kind === 'service' ? 'Services' : 'EndpointSlices or Endpoints'} seen`,
    registers,
  });
  new Gauge({
    name: `kubeproxy_sync_proxy_rules_${kind}_changes_pending`,
    help: 'Services with changes, their own or of their endpoints, that are not handed on yet; the same for both kinds',
    registers,
    collect() {
      this.set(pendingServices());
    },
  });
  return counter;
}

function answerCounter(kind: 'healthz' | 'livez', registers: Registry[]): Counter<'code'> {
  const counter = new Counter({
    name: `kubeproxy_proxy_${kind}_total`,
    help: `Answers of /${kind}, by HTTP status`,
    labelNames: ['code'] as const,
    registers,
  });
  for (const code of [200, 503]) counter.inc({ code }, 0);
  return counter;
}
