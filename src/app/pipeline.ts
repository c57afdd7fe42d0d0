import { FamilyCapture } from '../capture/family-capture.ts';
import { PortBook, type PortBookOptions } from '../capture/port-book.ts';
import type { Config } from '../config/config.ts';
import type { FamilyMetrics } from '../http/kube-proxy-metrics.ts';
import { type ListeningSockets, localPorts } from '../kernel/local-ports.ts';
import { DEFAULT_NODE_PORTS } from '../model/address.ts';
import type { Capture } from '../model/capture.ts';
import type { Conntrack } from '../model/conntrack.ts';
import type { DataPlane } from '../model/data-plane.ts';
import type { SyncHealth } from '../model/metrics.ts';
import type { SnapshotDelta } from '../model/service-port.ts';
import { ServiceTracker } from '../services/service-tracker.ts';
import type { FamilyPipeline } from '../sync/control-plane.ts';
import { Controller } from '../sync/controller.ts';
import { FlowSync } from '../sync/flow-sync.ts';
import { Listeners } from '../sync/listeners.ts';
import type { FamilyBinding, ServedFamilies } from '../sync/served-families.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import type { OpenCapture } from './capture.ts';
import type { ThisNode } from './node.ts';
import type { Source } from './source.ts';

export interface Pipeline extends FamilyPipeline {
  readonly capture: Capture;
  readonly metrics: FamilyMetrics;
}

/** What the pipelines of all families share. */
export interface Surroundings {
  readonly config: Config;
  readonly served: ServedFamilies;
  readonly node: ThisNode;
  readonly source: Pick<Source, 'servers'>;
  /** The sockets of this machine, the proxy's own too. */
  readonly sockets: ListeningSockets;
  /** Of every family. */
  readonly pipelines: readonly Pipeline[];
  readonly dataPlane: DataPlane;
  /** See `CaptureFacts`. */
  readonly isMarking: boolean;
  readonly capture: OpenCapture;
  readonly conntrack: Conntrack;
  readonly log: Log;
}

/** What a pipeline reports to. */
export interface Reports {
  readonly metrics: FamilyMetrics;
  readonly health: SyncHealth;
  readonly onDelta: (delta: SnapshotDelta) => void;
}

export function createPipeline(binding: FamilyBinding, around: Surroundings, reports: Reports): Pipeline {
  const { family } = binding;
  const { config, served, node, source, sockets, pipelines, dataPlane, isMarking, conntrack, log } = around;
  const { clientAddresses, scheduler } = config;
  const { metrics } = reports;
  const httpPorts = httpPortsOf(config);
  const tracker = new ServiceTracker(family, {
    servedFamilies: () => served.active,
    isMarking,
    httpPorts,
    waitForEndpointsMs: config.waitForEndpointsMs,
    isListening: (address, port, protocol) =>
      (address === undefined
        ? sockets.isTaken(family, port, protocol)
        : sockets.isListening(address, port, protocol)) &&
      !pipelines.some(({ listeners }) => listeners.localPorts[protocol].has(port)),
    nodePortAddresses: () => node.nodePortAddresses([family]),
    holds: (name, to, protocol) => capture.holds(name, to, protocol),
    podCidrs: config.clusterCidrs,
    apiServers: () => source.servers?.() ?? [],
    ...(config.nodeEndpointPorts !== undefined && { nodeEndpointPorts: config.nodeEndpointPorts }),
    ...(config.externalIpAllowList !== undefined && { allowedExternalIPs: config.externalIpAllowList }),
  });
  const ports = new PortBook({
    ...localPortsFor(config),
    clock,
    random: Math.random,
    isNeeded: (port, protocol) => httpPorts.has(port) || tracker.addresses.needsPort(port, protocol),
  });
  const flows = new FlowSync({ family, conntrack, clock, log, metrics });
  const listeners = new Listeners({ ...binding, dataPlane, clock, log, ports, flows, clientAddresses, scheduler });
  const capture: Capture = new FamilyCapture({
    method: around.capture.method,
    others: around.capture.others,
    clock,
    log,
    metrics,
    family,
    ports,
    node: () => node.facts(binding),
    connectionMark: isMarking ? config.dataPlane.connectionMark : undefined,
  });
  const controller = new Controller({
    clock,
    log,
    tracker,
    listeners,
    ports,
    capture,
    flows,
    ...reports,
    syncPeriodMs: config.iptablesSyncPeriodMs,
    minSyncPeriodMs: config.iptablesMinSyncPeriodMs,
  });
  return { ...binding, tracker, listeners, controller, capture, metrics };
}

/** A range that an administrator chose is for the proxy, with NodePorts and reserved ports in it. */
function localPortsFor({ proxyPortRange }: Config): Pick<PortBookOptions, 'range' | 'reserved' | 'leftForLast'> {
  if (proxyPortRange !== undefined) return { range: proxyPortRange, reserved: new Set() };
  const { range, reserved } = localPorts();
  return { range, reserved, leftForLast: DEFAULT_NODE_PORTS };
}

/** The ports of the proxy's own HTTP servers. */
export function httpPortsOf({ healthzAddress, metricsAddress }: Config): ReadonlySet<number> {
  return new Set([healthzAddress, metricsAddress].flatMap((at) => at?.port ?? []));
}
