import type { Config } from '../cli/config.ts';
import { VERSION } from '../cli/version.ts';
import { createConntrack } from '../conntrack/create.ts';
import { Upgrade } from '../handover/upgrade.ts';
import { checkDescriptorLimit } from '../host/descriptor-limit.ts';
import { localAddresses } from '../host/host-address.ts';
import { applyHostSettings } from '../host/host-settings.ts';
import { ListeningSockets } from '../host/listening-sockets.ts';
import { NodeAddress } from '../host/node-address.ts';
import { ServiceManager } from '../host/service-manager.ts';
import { systemClock as clock, machineUptimeMs } from '../host/system-clock.ts';
import { startExecHelper } from '../iptables/exec-helper.ts';
import { createIptables } from '../iptables/iptables.ts';
import { familyOf, type IpFamily } from '../model/address.ts';
import { nodeName as nameOfNode } from '../sources/kubernetes/node-object.ts';
import { isEligible, type NodeStatus } from '../sources/kubernetes/node-status.ts';
import { DataPlaneLog } from '../telemetry/data-plane-log.ts';
import { Health } from '../telemetry/health.ts';
import { HealthCheckNodePorts } from '../telemetry/health-check-node-ports.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { NoLocalEndpoints } from '../telemetry/no-local-endpoints.ts';
import { openLog } from './commands.ts';
import { ControlPlane } from './control-plane.ts';
import { HealthChecks } from './health-checks.ts';
import { httpServers } from './http-servers.ts';
import { openDataPlane } from './open-data-plane.ts';
import { openSource, type Source } from './open-source.ts';
import { createPipeline, type Pipeline } from './pipeline.ts';
import { servedFamilies } from './served-families.ts';
import { openChannelToPredecessor, succeed, upgradeMeans } from './succession.ts';
import { watchConfiguration } from './watch-configuration.ts';
import { watchMachine } from './watch-machine.ts';

/** A stop that takes longer than this is cut short: the rules stay in any case, and systemd would kill us later. */
const STOP_DEADLINE_MS = 10_000;

export interface Run {
  readonly config: Config;
  readonly warnings: readonly string[];
  readonly argv: readonly string[];
  /** The text of the file of `--config`. */
  readonly configuration: string;
}

/** Resolves once everything is running. Rejects with a sentence for the user when it cannot start. */
export async function run({ config, warnings, argv, configuration }: Run): Promise<void> {
  const log = openLog(config.log);
  for (const warning of warnings) log.warn(warning);
  process.on('uncaughtException', (error) => {
    // One connection's fault must not end all the others.
    log.error('An unexpected error; please report it', { err: error.stack ?? String(error) });
  });
  // From the beginning, as a signal that nobody handles ends the process, which may be a successor already.
  process.on('SIGHUP', () => {
    if (!stopping) void upgrade?.run();
  });
  const startedAt = clock.wallNow();
  let stopping = false;
  let upgrade: Upgrade | undefined;

  const { exec } = startExecHelper({ clock, log });
  const iptables = await createIptables({ flavour: config.iptablesMode, exec, log });
  const hosts = { IPv4: new NodeAddress({ family: 'IPv4', log }), IPv6: new NodeAddress({ family: 'IPv6', log }) };
  const { served, leftOut } = await servedFamilies({ bindAddress: config.bindAddress, hosts, iptables });
  const families = served.map(({ family }) => family) as [IpFamily, ...IpFamily[]];

  const health = new Health(clock, 2 * config.iptablesSyncPeriodMs);
  const dataPlaneLog = new DataPlaneLog(log, clock);
  const dataPlane = await openDataPlane(config, { log, observer: dataPlaneLog });
  const nodeName = nameOfNode(config.hostnameOverride);
  const apiStatus = () => source.status?.();
  const metrics: Metrics = new Metrics({
    clock,
    version: VERSION,
    health,
    families,
    pendingServices: () => pipelines.reduce((sum, { tracker }) => sum + tracker.pendingServices, 0),
    stats: () => dataPlane.stats(),
    droppedLogLines: () => log.droppedLines,
    apiStatus,
  });
  const stopped = new AbortController();
  const source: Source = await openSource(config, { nodeName, log, metrics, signal: stopped.signal });

  const conntrack = await createConntrack({
    clock,
    log,
    exec,
    localAddresses: () => [...localAddresses('IPv4'), ...localAddresses('IPv6')],
  });
  const programs = new ListeningSockets(clock);
  const healthCheckNodePorts = new HealthCheckNodePorts({
    proxyHealthy: () => health.report().healthy,
    clock,
    log,
  });
  const healthChecks = new HealthChecks(healthCheckNodePorts);
  const pipelines: readonly Pipeline[] = served.map((each) => {
    const { family } = each;
    const noLocal = new NoLocalEndpoints();
    const familyMetrics = metrics.of(family);
    return createPipeline({
      config,
      served: each,
      servedFamilies: families,
      host: hosts[family],
      isListening: (address, port, protocol) =>
        programs.isListening(address, port, protocol) &&
        !pipelines.some(({ listeners }) => listeners.isLocalPort(port, protocol)),
      dataPlane,
      iptables,
      conntrack,
      metrics: familyMetrics,
      health: health.of(family),
      log,
      onDelta: (delta) => {
        noLocal.apply(delta);
        for (const policy of ['internal', 'external'] as const) {
          familyMetrics.noLocalEndpoints(policy, noLocal.count(policy));
        }
        healthChecks.update(family, delta.healthChecks);
        for (const port of delta.unserved) source.reportUnserved?.(port);
        for (const at of delta.triggeredAt) {
          // What happened before the start says how old the cluster is, not how fast this program.
          if (at >= startedAt) familyMetrics.networkProgrammed(Math.max(0, clock.wallNow() - at));
        }
      },
    });
  });
  const controlPlane = new ControlPlane(pipelines, metrics.of(families[0]));
  controlPlane.setTopology({ nodeName });
  watchMachine({ config, pipelines, hosts, healthCheckNodePorts });

  const predecessor = await openChannelToPredecessor();
  if (predecessor === undefined) {
    controlPlane.start();
    await source.start(controlPlane);
  } else {
    await succeed(predecessor, { source, controlPlane, dataPlane });
    log.info('Took over from the predecessor', { ports: [...dataPlane.stats()].length });
  }
  // Once the start can no longer be refused, and after iptables, which has loaded conntrack.
  if (leftOut !== undefined) log.info(`Only ${families[0]} is served`, { reason: leftOut });
  applyHostSettings(config.host, log);
  checkDescriptorLimit(config.dataPlane.udpMaxFlows, log);
  void source.identifyNode?.().then((addresses) => {
    if (stopped.signal.aborted) return;
    for (const family of families) {
      const isNamed = addresses?.some((address) => familyOf(address) === family);
      // Clusters of one family have nodes with addresses of both.
      if (isNamed || family === families[0]) hosts[family].prefer(addresses);
    }
    controlPlane.rulesMayDiffer();
  });
  let node: NodeStatus | undefined;
  source.watchNode?.((status) => {
    node = status;
    controlPlane.setTopology({ nodeName, ...(status.zone !== undefined && { zone: status.zone }) });
  });
  const startServers = () => {
    const started = httpServers(config, observed);
    for (const server of started) server.start();
    return started;
  };
  const observed = {
    ...{ log, health, metrics, apiStatus },
    // While nothing is known of the node, nothing speaks against it.
    nodeEligible: () => node === undefined || isEligible(node),
    onUnbindable: () => void stop(undefined, 1),
  };
  let servers = startServers();
  const supervisor = new ServiceManager({ env: process.env, uptimeMs: machineUptimeMs, log });
  upgrade = new Upgrade({
    clock,
    log,
    supervisor,
    pid: process.pid,
    means: await upgradeMeans(dataPlane),
    controlPlane: {
      pause: async () => {
        healthCheckNodePorts.pause();
        await Promise.all([controlPlane.pause(), ...servers.map((server) => server.close())]);
      },
      resume: () => {
        controlPlane.resume();
        healthCheckNodePorts.resume();
        servers = startServers();
      },
    },
    onReleased: async () => {
      clock.after(STOP_DEADLINE_MS, () => process.exit(0));
      await dataPlane.handOver?.release();
      await log.flush();
      process.exit(0);
    },
  });

  const stop = async (signal: NodeJS.Signals | undefined, code = 0) => {
    if (stopping) return;
    stopping = true;
    stopped.abort();
    log.info('Stopping; the rules stay, so that a successor finds them', { signal });
    clock.after(STOP_DEADLINE_MS, () => process.exit(code));
    await supervisor.stopping();
    await upgrade?.abandon();
    await source.stop();
    await Promise.all([controlPlane.stop(), ...servers.map((server) => server.close())]);
    healthCheckNodePorts.pause();
    await dataPlane.shutdown();
    dataPlaneLog.close();
    await log.flush();
    process.exit(code);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  if (config.configFile !== undefined) {
    // Elsewhere, whatever runs this process would take the end of it for the end of the proxy, so it might as well end.
    const canHandOver = dataPlane.handOver !== undefined && process.env['NOTIFY_SOCKET'] !== undefined;
    const onUpdate = () => void (canHandOver ? upgrade?.run() : stop(undefined, 1));
    watchConfiguration({ path: config.configFile, argv, configuration, log, onUpdate });
  }
  log.info('Started', { version: VERSION, node: process.version });
  await supervisor.ready();
}
