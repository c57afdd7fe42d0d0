import { VERSION } from '../config/version.ts';
import type { Health } from '../http/health.ts';
import { openDescriptors } from '../http/process-metrics.ts';
import { measureLoopDelay, ownDescriptorLimit } from '../kernel/process.ts';
import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { Iptables } from '../model/iptables.ts';
import type { ApiStatus } from '../model/source.ts';
import type { Explanation, NodeView, Question, View } from '../model/view.ts';
import type { DataPlaneLog } from '../operate/log/data-plane-log.ts';
import type { ProcessLog } from '../operate/log/log.ts';
import { TrafficSampler } from '../operate/view/traffic.ts';
import { RunningView } from '../operate/view/view.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import type { OpenedDataPlane } from './open-data-plane.ts';
import type { Pipeline } from './pipeline.ts';

export interface ViewParts {
  readonly nodeName: string;
  /** Milliseconds since 1970. */
  readonly startedAt: () => number;
  readonly data: OpenedDataPlane;
  readonly iptables: Iptables;
  /** Of the families that are served now. */
  readonly pipelines: () => readonly Pipeline[];
  readonly health: Health;
  readonly apiStatus: () => ApiStatus | undefined;
  readonly log: ProcessLog;
  readonly dialErrors: DataPlaneLog;
  readonly drained: { list(): readonly Endpoint[]; has(endpoint: Endpoint): boolean };
  readonly explain: (question: Question) => Promise<Explanation>;
}

/** Often enough to see what a person would notice. */
const LOOP_LOOKS_MS = 50;

/** What operators are shown, and the sampler that it needs, to be started and stopped. */
export function openView(parts: ViewParts): { readonly view: View; readonly sampler: TrafficSampler } {
  const takeLoopDelay = measureLoopDelay(LOOP_LOOKS_MS);
  let loopDelayMs: NodeView['loopDelayMs'] = { p50: 0, p99: 0, max: 0 };
  const { dataPlane } = parts.data;
  const sampler = new TrafficSampler({
    clock,
    dataPlane,
    onSample: () => {
      const { p50, p99, max } = takeLoopDelay() ?? loopDelayMs;
      loopDelayMs = { p50, p99, max };
    },
    log: parts.log,
  });
  const view = new RunningView({
    families: () =>
      parts.pipelines().map(({ family, listeners }) => ({
        family,
        names: () => listeners.names(),
        carried: (name) => listeners.carried(name),
      })),
    dataPlane,
    sampler,
    dialErrors: parts.dialErrors,
    isDrained: (endpoint) => parts.drained.has(endpoint),
    log: parts.log,
    node: async () => ({ ...nodeView(parts, sampler), loopDelayMs, descriptors: await descriptors() }),
    explain: parts.explain,
  });
  return { view, sampler };
}

function nodeView(
  { nodeName, startedAt, data, iptables, pipelines, health, apiStatus, log, drained }: ViewParts,
  { totals, rates }: TrafficSampler,
): Omit<NodeView, 'loopDelayMs' | 'descriptors'> {
  const api = apiStatus();
  const { rss, heapUsed } = process.memoryUsage();
  return {
    version: VERSION,
    nodeVersion: process.version,
    nodeName,
    pid: process.pid,
    startedAt: startedAt(),
    now: clock.wallNow(),
    engine: data.engine,
    ...(data.workers !== undefined && { workers: data.workers }),
    iptables: iptables.flavour,
    healthy: health.report().healthy,
    families: pipelines().map(({ family, tracker, listeners, lastSync }) => {
      const last = lastSync();
      const lastSyncedAt = health.lastUpdated(family)?.wallMs;
      return {
        family,
        servicePorts: listeners.count,
        pending: tracker.pendingServices,
        ...(last && { lastSync: last }),
        ...(lastSyncedAt !== undefined && { lastSyncedAt }),
      };
    }),
    ...(api && { api: { connected: api.connected, staleForMs: api.staleForMs } }),
    memory: { rss, heapUsed },
    totals,
    rates,
    verbosity: log.verbosity,
    drained: drained.list().map(endpointName),
  };
}

async function descriptors(): Promise<NodeView['descriptors']> {
  const limit = ownDescriptorLimit();
  return { open: await openDescriptors(), ...(limit !== undefined && { limit }) };
}
