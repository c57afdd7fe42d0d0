import type { Config } from '../config/config.ts';
import { VERSION } from '../config/version.ts';
import { ApiRequests } from '../http/api-requests.ts';
import { Health } from '../http/health.ts';
import { HealthCheckNodePorts } from '../http/health-check-node-ports.ts';
import { Metrics } from '../http/metrics.ts';
import { allLocalAddresses, localAddresses } from '../kernel/addresses.ts';
import { obstacleFinder, routedApartFinder } from '../kernel/client-addresses.ts';
import { NetlinkConntrack } from '../kernel/conntrack/conntrack.ts';
import { ExecHelper } from '../kernel/iptables/exec-helper.ts';
import { InstalledPrograms } from '../kernel/iptables/flavour.ts';
import { ListeningSockets } from '../kernel/local-ports.ts';
import { measureLoopDelay } from '../kernel/loop-delay.ts';
import { nodeName as nameOfNode } from '../kubernetes/node.ts';
import type { IpFamily } from '../model/address.ts';
import { endpointOf } from '../model/endpoint.ts';
import type { ServicePortName } from '../model/service.ts';
import type { SnapshotDelta } from '../model/service-port.ts';
import { ConnectionFeed } from '../operate/connection-log/feed.ts';
import { ConnectionLogFile } from '../operate/connection-log/file.ts';
import { DataPlaneLog } from '../operate/log/data-plane-log.ts';
import { DialErrors } from '../operate/log/dial-errors.ts';
import type { ProcessLog } from '../operate/log/log.ts';
import { ControlPlane } from '../sync/control-plane.ts';
import { familiesOf, ServedFamilies } from '../sync/served-families.ts';
import { WakeCalls } from '../sync/wake-calls.ts';
import { Weights } from '../sync/weights.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { openCapture } from './capture.ts';
import { ClientWatch } from './clients.ts';
import type { ConfigurationWatch } from './configuration-watch.ts';
import { openDataPlane } from './data-plane.ts';
import { NodeWatch, ThisNode } from './node.ts';
import { createPipeline, type Pipeline } from './pipeline.ts';
import { openSource } from './source.ts';
import { openView } from './view.ts';

/** A fifth as often as prom-client: at rest its looks would cost more than all else. */
const LOOP_LOOKS_MS = 50;

export interface Context {
  readonly config: Config;
  readonly log: ProcessLog;
  /** Milliseconds since 1970. */
  readonly startedAt: () => number;
  /** Ends what is not ended by the `stop` of a part. */
  readonly signal: AbortSignal;
  /** Missing without `--config`. */
  readonly configuration: Pick<ConfigurationWatch, 'path' | 'isInForce'> | undefined;
}

/** The parts of a proxy, joined and not started. */
export type Parts = Awaited<ReturnType<typeof assemble>>;

/** Rejects with a sentence for the user when the proxy cannot run here. */
export async function assemble({ config, log, startedAt, signal, configuration }: Context) {
  const nodeName = nameOfNode(config.hostnameOverride);
  const node = new ThisNode(config, { name: nodeName, log });
  const bindings = familiesOf(config.bindAddress, localAddresses);

  const families = bindings.map(({ family }) => family);
  const apiRequests = new ApiRequests();
  const source = await openSource(config, { nodeName, log, metrics: apiRequests, signal });

  const { exec } = new ExecHelper({ clock, log });
  const openRules = async () => {
    const capture = await openCapture(config, families, { exec, programs: new InstalledPrograms(exec), log });
    const address = (family: IpFamily) => node.address(family);
    const probe = (family: IpFamily) => capture.method.probe(family);
    const served = new ServedFamilies({ families, address, probe, clock, log });
    await served.begin();
    return { capture, served };
  };
  const dialErrors = new DialErrors(clock);
  const pipelines: Pipeline[] = [];
  const failed: DialErrors['failed'] = (failure) => {
    dialErrors.failed(failure);
    const { address } = endpointOf(failure.backend) ?? {};
    if (address !== undefined) source.state?.endpointFailed(address);
  };
  const uidOf = (name: ServicePortName) =>
    pipelines.map(({ tracker }) => tracker.uidOf(name)).find((each) => each !== undefined);
  const dataPlaneLog = new DataPlaneLog(
    log,
    clock,
    { failed },
    {
      onRefused: (part) => {
        const uid = uidOf(part.name);
        source.reportUnserved?.({ ...part, ...(uid !== undefined && { uid }) });
      },
      onWaiting: (name) => wakeCalls?.clientWaits(name),
    },
  );
  // Side by side: worker threads start while the kernel is probed.
  const [data, { capture, served }] = await Promise.all([openDataPlane(config, dataPlaneLog, log), openRules()]);
  const conntrack = new NetlinkConntrack({ log, localAddresses: allLocalAddresses });
  const { dataPlane, isMarking } = data;
  dialErrors.readFrom(dataPlane);
  const { callForPods } = source;
  const wakeCalls: WakeCalls | undefined =
    callForPods &&
    new WakeCalls({
      clock,
      log,
      dataPlane,
      carried: (name) => pipelines.flatMap(({ listeners }) => listeners.carried(name) ?? []),
      uidOf,
      call: (needed) => callForPods(needed),
    });
  const feed = new ConnectionFeed({ dataPlane, log, clock });
  const findObstacle = await obstacleFinder();
  const findRoutedApart = await routedApartFinder();

  const apiStatus = () => source.status?.();
  const health = new Health(clock, 2 * config.iptablesSyncPeriodMs);
  const metrics = new Metrics({
    clock,
    version: VERSION,
    registry: apiRequests.registry,
    health,
    families: served.active,
    tables: capture.method.tables,
    log,
    apiStatus,
    configInForce: () => configuration?.isInForce ?? true,
    pendingServices: () => pipelines.reduce((sum, { tracker }) => sum + tracker.pendingServices, 0),
    stats: () => dataPlane.stats(),
    connectionLog: () => feed.counts,
    wakeCalls: () => wakeCalls?.counts,
    takeLoopDelay: measureLoopDelay(LOOP_LOOKS_MS),
  });

  const proxyHealthy = () => health.report().healthy;
  const healthCheckNodePorts = new HealthCheckNodePorts({ proxyHealthy, clock, log });
  const sockets = new ListeningSockets(clock);
  const around = { config, served, node, source, sockets, pipelines, dataPlane, isMarking, capture, conntrack, log };
  for (const binding of bindings) {
    const { family } = binding;
    const familyMetrics = metrics.of(family);
    const onDelta = (delta: SnapshotDelta) => {
      familyMetrics.stateChanged(delta);
      healthCheckNodePorts.apply(family, delta.healthChecks);
      for (const port of delta.unserved) source.reportUnserved?.(port);
      for (const part of delta.refused) if (part.uid !== undefined) source.reportUnserved?.(part);
      for (const at of delta.triggeredAt) {
        // What happened before the start says how old the cluster is, not how fast this program.
        if (at >= startedAt()) familyMetrics.networkProgrammed(Math.max(0, clock.wallNow() - at));
      }
    };
    pipelines.push(createPipeline(binding, around, { metrics: familyMetrics, health: health.of(family), onDelta }));
  }
  const onServed = (family: IpFamily) => metrics.serve(family);
  const controlPlane = new ControlPlane({ pipelines, served, onServed, clock });
  const weights = new Weights(pipelines);
  const clients = new ClientWatch({
    dataPlane,
    findObstacle,
    findRoutedApart,
    node,
    log,
    clientAddress: config.clientAddresses.clientAddress,
    families: { wanted: families, served: () => served.active },
  });
  const nodeWatch = new NodeWatch({
    node,
    clients,
    served,
    pipelines,
    controlPlane,
    healthCheckNodePorts,
    log,
    signal,
  });

  // At the end: a file that is renamed from now on is opened again on a signal.
  const connectionLog = openConnectionLog(config, feed, log);
  const clientAddresses = { policy: config.clientAddresses, facts: () => clients.facts };
  const { scheduler } = config;
  const viewParts = {
    nodeName,
    startedAt,
    configuration,
    data,
    capture,
    controlPlane,
    health,
    source,
    log,
    dialErrors,
    weights,
  };
  return {
    node,
    capture,
    served,
    dataPlane,
    dataPlaneLog,
    health,
    metrics,
    apiStatus,
    source,
    healthCheckNodePorts,
    feed,
    connectionLog,
    controlPlane,
    weights,
    wakeCalls,
    nodeWatch,
    ...openView({ ...viewParts, clientAddresses, scheduler }),
  };
}

/** Throws a sentence when there can be no such file. */
function openConnectionLog({ connectionLog: path }: Config, feed: ConnectionFeed, log: ProcessLog) {
  if (path === undefined) return undefined;
  const onDropped = (count: number, err?: string) => feed.dropped('file', count, err);
  const file = new ConnectionLogFile({ path, clock, log, onDropped });
  feed.subscribe(file);
  return file;
}
