import type { Choice } from '../capture/choose.ts';
import { VERSION } from '../config/version.ts';
import type { Health } from '../http/health.ts';
import { openDescriptors } from '../http/process-metrics.ts';
import { machine } from '../kernel/addresses.ts';
import { descriptorLimit } from '../kernel/descriptor-limit.ts';
import { measureLoopDelay } from '../kernel/loop-delay.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Finding } from '../model/finding.ts';
import type { SchedulerName } from '../model/scheduler.ts';
import type { ApiStatus } from '../model/source.ts';
import type { NodeView, View } from '../model/view.ts';
import type { DialErrors } from '../operate/log/dial-errors.ts';
import type { ProcessLog } from '../operate/log/log.ts';
import { createExplain } from '../operate/view/explain.ts';
import type { ClientAddresses } from '../operate/view/seen-address.ts';
import { TrafficSampler } from '../operate/view/traffic.ts';
import { RunningView } from '../operate/view/view.ts';
import type { ControlPlane } from '../sync/control-plane.ts';
import type { Weights } from '../sync/weights.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { counted } from '../util/text.ts';
import type { Context } from './assemble.ts';
import type { OpenedDataPlane } from './data-plane.ts';
import type { Pipeline } from './pipeline.ts';
import type { Source } from './source.ts';

export interface ViewParts {
  readonly nodeName: string;
  /** Milliseconds since 1970. */
  readonly startedAt: () => number;
  readonly configuration: Context['configuration'];
  readonly data: OpenedDataPlane;
  readonly capture: Choice;
  readonly controlPlane: ControlPlane<Pipeline>;
  readonly health: Health;
  readonly source: Source;
  readonly log: ProcessLog;
  readonly dialErrors: DialErrors;
  readonly clientAddresses: ClientAddresses;
  readonly weights: Weights;
  /** Of Services that ask for none. */
  readonly scheduler: SchedulerName;
}

/** Often enough to see what a person would notice. */
const LOOP_LOOKS_MS = 50;

const MAX_FINDINGS = 20;

/** What operators see, and the sampler that it needs. The caller starts and stops the sampler. */
export function openView(parts: ViewParts): { readonly view: View; readonly sampler: TrafficSampler } {
  const takeLoopDelay = measureLoopDelay(LOOP_LOOKS_MS);
  let loopDelayMs: NodeView['loopDelayMs'] = { p50: 0, p99: 0, max: 0 };
  const sampler = new TrafficSampler({
    clock,
    dataPlane: parts.data.dataPlane,
    onSample: () => {
      const { p50, p99, max } = takeLoopDelay() ?? loopDelayMs;
      loopDelayMs = { p50, p99, max };
    },
    log: parts.log,
  });
  const { data, controlPlane, weights, scheduler, clientAddresses, dialErrors, log } = parts;
  const { dataPlane } = data;
  const view: RunningView = new RunningView({
    families: () =>
      controlPlane.active.map(({ family, listeners, tracker, capture }) => ({
        family,
        names: () => listeners.names(),
        carried: (name) => listeners.carried(name),
        whyEmpty: (name) => tracker.noEndpoints(name, 'own', { isBrief: true })?.message,
        conflictsOf: (name) => capture.conflictsOf(name),
        refusedOf: (name) => tracker.refusedOf(name),
      })),
    dataPlane,
    sampler,
    dialErrors,
    log,
    isDrained: (endpoint) => weights.of(endpoint) === 0,
    scheduler,
    node: async () => ({ ...nodeView(parts, sampler), loopDelayMs, descriptors: await descriptors() }),
    explain: createExplain({
      dataPlane,
      machine,
      clock,
      clientAddresses,
      families: () => controlPlane.active,
      service: (name, family) => view.service(name, family),
    }),
  });
  return { view, sampler };
}

function nodeView(
  {
    nodeName,
    startedAt,
    configuration,
    data,
    capture: { method, why },
    controlPlane,
    health,
    source,
    log,
    weights,
  }: ViewParts,
  { totals, rates }: TrafficSampler,
): Omit<NodeView, 'loopDelayMs' | 'descriptors'> {
  const api = source.status?.();
  const findings = firstOf([...[source.state?.finding() ?? []].flat(), ...(source.findings?.() ?? [])]);
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
    capture: { method: method.description, why },
    ...(method.flavour !== undefined && { iptables: method.flavour }),
    healthy: health.report().healthy,
    families: controlPlane.active.map(({ family, tracker, listeners, metrics }) => {
      const lastSync = metrics.lastSync();
      const lastSyncedAt = health.lastUpdated(family)?.wallMs;
      return {
        family,
        servicePorts: listeners.count,
        pending: tracker.pendingServices,
        ...(lastSync && { lastSync }),
        ...(lastSyncedAt !== undefined && { lastSyncedAt }),
      };
    }),
    ...(configuration?.isInForce === false && { configNotInForce: configuration.path }),
    source: source.description,
    ...(api && { api: apiView(api) }),
    ...(findings.length > 0 && { findings }),
    memory: { rss, heapUsed },
    totals,
    ...(rates && { rates }),
    verbosity: log.verbosity,
    drained: weights.list().flatMap((each) => (each.weight === 0 ? endpointName(each) : [])),
    weights: weights.list().filter(({ weight }) => weight > 0),
  };
}

/** There may be thousands of files. */
function firstOf(findings: readonly Finding[]): readonly Finding[] {
  if (findings.length <= MAX_FINDINGS) return findings;
  const more = `${counted(findings.length - MAX_FINDINGS, 'more fault')}; the log names all of them`;
  return [...findings.slice(0, MAX_FINDINGS), { level: 'warn', found: more }];
}

function apiView({ connected, staleForMs, err, servers, servedStateOf }: ApiStatus): NonNullable<NodeView['api']> {
  return {
    connected,
    staleForMs,
    servers,
    ...(err !== undefined && { err }),
    ...(servedStateOf !== undefined && { servedStateOf }),
  };
}

async function descriptors(): Promise<NodeView['descriptors']> {
  const limit = descriptorLimit();
  return { open: await openDescriptors(), ...(limit !== undefined && { limit }) };
}
