import type { Config } from '../config/config.ts';
import { VERSION } from '../config/version.ts';
import { Health } from '../http/health.ts';
import { HealthCheckNodePorts } from '../http/health-check-node-ports.ts';
import { Metrics } from '../http/metrics.ts';
import { allLocalAddresses } from '../kernel/addresses.ts';
import { NetlinkConntrack } from '../kernel/conntrack/conntrack.ts';
import { ExecHelper } from '../kernel/iptables/exec-helper.ts';
import { createIptables } from '../kernel/iptables/iptables.ts';
import { ListeningSockets } from '../kernel/local-ports.ts';
import { measureLoopDelay } from '../kernel/process.ts';
import { nodeName as nameOfNode } from '../kubernetes/node.ts';
import type { IpFamily } from '../model/address.ts';
import type { DataPlane } from '../model/data-plane.ts';
import type { ApiStatus } from '../model/source.ts';
import type { View } from '../model/view.ts';
import { DataPlaneLog } from '../operate/log/data-plane-log.ts';
import type { ProcessLog } from '../operate/log/log.ts';
import { createExplain } from '../operate/view/explain.ts';
import type { TrafficSampler } from '../operate/view/traffic.ts';
import { Drains } from '../sync/drains.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { ControlPlane } from './control-plane.ts';
import { HealthChecks } from './health-checks.ts';
import { machine } from './machine.ts';
import { openDataPlane } from './open-data-plane.ts';
import { openSource, type Source } from './open-source.ts';
import { openView } from './open-view.ts';
import { createPipeline, type Pipeline } from './pipeline.ts';
import { Ability, familiesOf, probeNat } from './served-families.ts';
import { ThisNode } from './this-node.ts';
import { watchMachine } from './watch-machine.ts';

/** A fifth as often as prom-client: at rest its looks would cost more than all else. */
const LOOP_LOOKS_MS = 50;

/** The parts of a proxy, joined and not started. */
export interface Parts {
  readonly node: ThisNode;
  readonly ability: Ability;
  readonly dataPlane: DataPlane;
  readonly dataPlaneLog: DataPlaneLog;
  readonly source: Source;
  readonly controlPlane: ControlPlane;
  /** Looks again at what the node is. */
  readonly lookAtNode: () => void;
  readonly drains: Drains;
  readonly health: Health;
  readonly healthCheckNodePorts: HealthCheckNodePorts;
  readonly metrics: Metrics;
  readonly apiStatus: () => ApiStatus | undefined;
  readonly view: View;
  readonly sampler: TrafficSampler;
}

export interface Surroundings {
  readonly log: ProcessLog;
  /** Milliseconds since 1970. */
  readonly startedAt: () => number;
  /** Ends what is asked and told beside the Services. */
  readonly signal: AbortSignal;
}

/** Rejects with a sentence for the user when the proxy cannot run here. */
export async function assemble(config: Config, { log, startedAt, signal }: Surroundings): Promise<Parts> {
  const { exec } = new ExecHelper({ clock, log });
  const nodeName = nameOfNode(config.hostnameOverride);
  const node = new ThisNode(config, { name: nodeName, log });
  const families = familiesOf(config.bindAddress);
  const dataPlaneLog = new DataPlaneLog(log, clock);
  // Side by side: threads start while programs are asked what they are.
  const [data, { iptables, ability, served }] = await Promise.all([
    openDataPlane(config, { log, observer: dataPlaneLog }),
    createIptables({ flavour: config.iptablesMode, exec, log }).then(async (iptables) => {
      const address = (family: IpFamily) => node.address(family);
      const ability = new Ability({ families, address, probe: probeNat(iptables), clock, log });
      return { iptables, ability, served: await ability.atStart() };
    }),
  ]);

  const health = new Health(clock, 2 * config.iptablesSyncPeriodMs);
  const { dataPlane } = data;
  const apiStatus = () => source.status?.();
  const metrics: Metrics = new Metrics({
    clock,
    version: VERSION,
    health,
    families: served,
    pendingServices: () => controlPlane.active.reduce((sum, { tracker }) => sum + tracker.pendingServices, 0),
    stats: () => dataPlane.stats(),
    log,
    apiStatus,
    takeLoopDelay: measureLoopDelay(LOOP_LOOKS_MS),
  });
  const source: Source = await openSource(config, { nodeName, log, metrics, signal });

  const conntrack = new NetlinkConntrack({ log, localAddresses: allLocalAddresses });
  const programs = new ListeningSockets(clock);
  const healthCheckNodePorts = new HealthCheckNodePorts({
    proxyHealthy: () => health.report().healthy,
    clock,
    log,
  });
  const healthChecks = new HealthChecks(healthCheckNodePorts);
  const pipelines: readonly Pipeline[] = families.map((each) => {
    const { family } = each;
    const familyMetrics = metrics.of(family);
    return createPipeline({
      config,
      served: each,
      servedFamilies: () => controlPlane.active.map((active) => active.family),
      node,
      isListening: (address, port, protocol) =>
        programs.isListening(address, port, protocol) &&
        !pipelines.some(({ listeners }) => listeners.isLocalPort(port, protocol)),
      dataPlane,
      isMarking: data.isMarking,
      iptables,
      conntrack,
      metrics: familyMetrics,
      health: health.of(family),
      log,
      onDelta: (delta) => {
        familyMetrics.stateChanged(delta);
        healthChecks.update(family, delta.healthChecks);
        for (const port of delta.unserved) source.reportUnserved?.(port);
        for (const at of delta.triggeredAt) {
          // What happened before the start says how old the cluster is, not how fast this program.
          if (at >= startedAt()) familyMetrics.networkProgrammed(Math.max(0, clock.wallNow() - at));
        }
      },
    });
  });
  const drains = new Drains(pipelines);
  const { view, sampler } = openView({
    ...{ nodeName, startedAt, data, iptables, health, apiStatus, log, dialErrors: dataPlaneLog },
    pipelines: () => controlPlane.active,
    drained: drains,
    explain: createExplain({
      ...{ iptables, dataPlane, machine, clock },
      families: () => controlPlane.active,
      service: (name, family) => view.service(name, family),
    }),
  });
  const controlPlane = new ControlPlane({ pipelines, served, metrics, clock });
  const look = watchMachine({
    ...{ node, ability, pipelines, controlPlane, healthCheckNodePorts, clock, log, signal },
  });
  return {
    ...{ node, ability, dataPlane, dataPlaneLog, source, controlPlane, lookAtNode: look, drains },
    ...{ health, healthCheckNodePorts, metrics, apiStatus, view, sampler },
  };
}
