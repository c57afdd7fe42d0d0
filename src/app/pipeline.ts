import type { Config } from '../config/config.ts';
import type { FamilyMetrics } from '../http/kube-proxy-metrics.ts';
import { localPorts } from '../kernel/local-ports.ts';
import type { IpFamily } from '../model/address.ts';
import { DEFAULT_NODE_PORTS } from '../model/address.ts';
import type { Conntrack } from '../model/conntrack.ts';
import type { DataPlane } from '../model/data-plane.ts';
import type { Iptables } from '../model/iptables.ts';
import type { SyncHealth } from '../model/metrics.ts';
import type { SnapshotDelta } from '../model/service-port.ts';
import type { SyncResult } from '../model/view.ts';
import { ServiceTracker, type ServiceTrackerOptions } from '../services/service-tracker.ts';
import { Controller } from '../sync/controller.ts';
import { FlowSync } from '../sync/flow-sync.ts';
import { Listeners } from '../sync/listeners.ts';
import { PortAllocator } from '../sync/port-allocator.ts';
import { RuleSync } from '../sync/rule-sync.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import type { ServedFamily } from './served-families.ts';
import type { ThisNode } from './this-node.ts';

/** From events to listeners, rules and flows, within one address family. */
export interface Pipeline extends ServedFamily {
  readonly tracker: ServiceTracker;
  readonly listeners: Listeners;
  readonly controller: Controller;
  /** How the last sync of the rules ended. */
  readonly lastSync: () => SyncResult | undefined;
}

export interface PipelineOptions {
  readonly config: Config;
  readonly served: ServedFamily;
  /** Those that are served now. */
  readonly servedFamilies: () => readonly IpFamily[];
  readonly node: ThisNode;
  /** Whether a program of this machine that is not the proxy receives what is sent there. */
  readonly isListening: NonNullable<ServiceTrackerOptions['isListening']>;
  readonly dataPlane: DataPlane;
  /** See `CaptureFacts`. */
  readonly isMarking: boolean;
  readonly iptables: Iptables;
  readonly conntrack: Conntrack;
  readonly metrics: FamilyMetrics;
  readonly health: SyncHealth;
  readonly log: Log;
  readonly onDelta: (delta: SnapshotDelta) => void;
}

export function createPipeline(options: PipelineOptions): Pipeline {
  const { config, served, servedFamilies, node, isListening, dataPlane, iptables, conntrack, metrics, log } = options;
  const { isMarking } = options;
  const { family, bindAddress } = served;
  const ownPorts = new Set([config.healthzAddress?.port, config.metricsAddress?.port]);
  const tracker = new ServiceTracker(family, {
    servedFamilies,
    isMarking,
    isListening,
    podCidrs: config.clusterCidrs,
    ...(config.externalIpAllowList.length > 0 && { allowedExternalIPs: config.externalIpAllowList }),
  });
  const ports = new PortAllocator({
    // Who has chosen a range with NodePorts in it knows that the API server gives out others.
    ...(config.proxyPortRange === undefined
      ? { ...localPorts(), leftForLast: DEFAULT_NODE_PORTS }
      : { range: config.proxyPortRange }),
    ...{ family, clock, random: Math.random },
    isNeeded: (port, protocol) => ownPorts.has(port) || tracker.needsPort(port, protocol),
  });
  const listeners = new Listeners({
    family,
    dataPlane,
    clock,
    log,
    ports,
    bindAddress,
  });
  const controller = new Controller({
    clock,
    log,
    metrics,
    health: options.health,
    tracker,
    listeners,
    ports,
    rules: new RuleSync({
      ...{ clock, iptables, log, metrics, family, node: () => node.facts(served) },
      ...(isMarking && { connectionMark: config.dataPlane.connectionMark }),
    }),
    flows: new FlowSync({ family, conntrack, clock, log, metrics }),
    onDelta: options.onDelta,
    syncPeriodMs: config.iptablesSyncPeriodMs,
    minSyncPeriodMs: config.iptablesMinSyncPeriodMs,
  });
  return { ...served, tracker, listeners, controller, lastSync: () => metrics.lastSync() };
}
