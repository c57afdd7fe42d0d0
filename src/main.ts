import { parseCommandLine } from './cli/command-line.ts';
import type { Config, IptablesMode, LogConfig } from './cli/config.ts';
import { PROGRAM, VERSION } from './cli/version.ts';
import type { ApiStatus } from './contracts/api-status.ts';
import type { DataPlane, DataPlaneObserver } from './contracts/data-plane.ts';
import type { Log } from './contracts/log.ts';
import type { ServiceSource } from './contracts/source.ts';
import { createFastDataPlane, defaultWorkers } from './dataplane/fast/create.ts';
import { createNodeDataPlane } from './dataplane/node/node-data-plane.ts';
import { localIPv4Addresses } from './host/host-address.ts';
import { NodeAddress } from './host/node-address.ts';
import { systemClock as clock } from './host/system-clock.ts';
import { createExec } from './iptables/exec.ts';
import { installedFlavours } from './iptables/flavour.ts';
import { createIptables } from './iptables/iptables.ts';
import type { Address } from './model/address.ts';
import { createApiClient } from './sources/kubernetes/create-api-client.ts';
import { createKubernetesSource } from './sources/kubernetes/kubernetes-source.ts';
import { reportStarting } from './sources/kubernetes/node-event.ts';
import { awaitNodeAddresses, nodeName } from './sources/kubernetes/node-object.ts';
import { createManifestSource } from './sources/manifests/manifest-source.ts';
import { ServiceTracker } from './state/service-tracker.ts';
import { cleanUp } from './sync/cleanup.ts';
import { Controller } from './sync/controller.ts';
import { Listeners } from './sync/listeners.ts';
import { PortAllocator } from './sync/port-allocator.ts';
import { RuleSync } from './sync/rule-sync.ts';
import { DataPlaneLog } from './telemetry/data-plane-log.ts';
import { Health } from './telemetry/health.ts';
import { HttpServer } from './telemetry/http-server.ts';
import { createLog, type ProcessLog } from './telemetry/log.ts';
import { descriptorOutput } from './telemetry/log-output.ts';
import { Metrics } from './telemetry/metrics.ts';
import { healthzRoutes, metricsRoutes } from './telemetry/routes.ts';

const STDERR = 2;
const WILDCARD = '0.0.0.0';
const HTTP_MAX_CONNECTIONS = 64;
/** A stop that takes longer than this is cut short: the rules stay in any case, and systemd would kill us later. */
const STOP_DEADLINE_MS = 10_000;

const code = await main(process.argv.slice(2));
// Not by letting the event loop run dry: worker threads and sockets of a start that failed would keep it going. On Linux,
// writes to standard streams are synchronous, so nothing of what was said is lost.
if (code !== undefined) process.exit(code);

/** The composition root: the only place that names real implementations. Resolves with the exit code, if it is known. */
async function main(argv: readonly string[]): Promise<number | undefined> {
  const commandLine = parseCommandLine(argv);
  switch (commandLine.kind) {
    case 'help':
    case 'version':
      process.stdout.write(`${commandLine.text}\n`);
      return 0;
    case 'error':
      return refuse(commandLine.text);
    case 'cleanup':
      return await cleanup(commandLine.iptablesMode, commandLine.log);
    case 'run':
      try {
        await run(commandLine.config);
        return undefined;
      } catch (error) {
        return refuse(error instanceof Error ? error.message : String(error));
      }
  }
}

function refuse(why: string): number {
  process.stderr.write(`${PROGRAM}: ${why}\n`);
  return 1;
}

function openLog({ verbosity, format }: LogConfig): ProcessLog {
  return createLog({ verbosity, format, output: descriptorOutput(STDERR), clock });
}

async function cleanup(mode: IptablesMode, logConfig: LogConfig): Promise<number> {
  const log = openLog(logConfig);
  const exec = createExec({ clock });
  // A node may have used both over time, so by default both are looked through.
  const flavours = mode === 'auto' ? await installedFlavours(exec) : [mode];
  if (flavours.length === 0) return refuse('no iptables is installed, so there are no rules to remove');
  const tools = await Promise.all(flavours.map((flavour) => createIptables({ flavour, exec, log })));
  const failures = await cleanUp(tools, log);
  await log.flush();
  return failures === 0 ? 0 : 1;
}

/** Resolves once everything is running. Rejects with a sentence for the user when it cannot start. */
async function run(config: Config): Promise<void> {
  const log = openLog(config.log);
  process.on('uncaughtException', (error) => {
    // One connection's fault must not end all the others.
    log.error('An unexpected error; please report it', { err: error.stack ?? String(error) });
  });

  const exec = createExec({ clock });
  const iptables = await createIptables({ flavour: config.iptablesMode, exec, log });
  if (config.bindAddress !== WILDCARD && !localIPv4Addresses().includes(config.bindAddress)) {
    throw new Error(
      `--bind-address ${config.bindAddress} is not an address of this node; give it one that is, or ${WILDCARD}`,
    );
  }
  const host = new NodeAddress({ log });
  if (host.current() === undefined) {
    throw new Error('this node has no IPv4 address but loopback ones; give an interface an address');
  }

  const health = new Health(clock, 2 * config.iptablesSyncPeriodMs);
  const dataPlaneLog = new DataPlaneLog(log, clock);
  const dataPlane = await openDataPlane(config, { log, observer: dataPlaneLog });
  const apiStatus = () => source.status?.();
  const metrics: Metrics = new Metrics({
    clock,
    version: VERSION,
    health,
    stats: () => dataPlane.stats(),
    droppedLogLines: () => log.droppedLines,
    apiStatus,
  });
  const source: Source = await openSource(config, { log, metrics });

  const listeners = new Listeners({
    dataPlane,
    clock,
    log,
    ports: new PortAllocator(config.proxyPortRange, Math.random),
    bindAddress: config.bindAddress,
    onPortalsChanged: () => controller.portalsChanged(),
  });
  const rules = new RuleSync({
    iptables,
    log,
    metrics,
    family: 'IPv4',
    bindAddress: config.bindAddress,
    nodePortCidrs: config.nodePortAddresses,
    hostAddress: () => host.current(),
  });
  const controller = new Controller({
    clock,
    log,
    metrics,
    health,
    tracker: new ServiceTracker('IPv4'),
    listeners,
    rules,
    syncPeriodMs: config.iptablesSyncPeriodMs,
    minSyncPeriodMs: config.iptablesMinSyncPeriodMs,
  });

  await source.start(controller);
  const stopped = new AbortController();
  void source.identifyNode?.(stopped.signal).then((addresses) => {
    if (stopped.signal.aborted) return;
    host.prefer(addresses);
    controller.portalsChanged();
  });
  const servers = httpServers(config, { log, health, metrics, apiStatus });
  for (const server of servers) server.start();
  log.info('Started', { version: VERSION, node: process.version });

  let stopping = false;
  const stop = async (signal: NodeJS.Signals) => {
    if (stopping) return;
    stopping = true;
    stopped.abort();
    log.info('Stopping; the rules stay, so that a successor finds them', { signal });
    clock.after(STOP_DEADLINE_MS, () => process.exit(0));
    await source.stop();
    await Promise.all([controller.stop(), ...servers.map((server) => server.close())]);
    await dataPlane.shutdown();
    dataPlaneLog.close();
    await log.flush();
    process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
}

async function openDataPlane(
  { engine, workers = defaultWorkers(), dataPlane: options }: Config,
  { log, observer }: { readonly log: Log; readonly observer: DataPlaneObserver },
): Promise<DataPlane> {
  if (engine !== 'node') {
    try {
      return await createFastDataPlane({ options: { ...options, workers }, observer, clock, log });
    } catch (error) {
      const err = error instanceof Error ? error.message : String(error);
      if (engine === 'fast') throw new Error(`the fast engine cannot run here (${err}); use --dataplane node`);
      log.warn('The fast engine cannot run here; the portable one carries the traffic, more slowly', { err });
    }
  }
  return createNodeDataPlane({ options, observer, clock, random: Math.random });
}

interface Source extends ServiceSource {
  status?(): ApiStatus;
  /** Tells the API server that the proxy of this node starts, and asks it for the node's addresses. */
  identifyNode?(signal: AbortSignal): Promise<readonly Address[] | undefined>;
}

async function openSource(
  { source: config, hostnameOverride }: Config,
  { log, metrics }: { readonly log: Log; readonly metrics: Metrics },
): Promise<Source> {
  if (config.kind === 'manifests') return createManifestSource({ paths: config.paths, clock, log });
  const api = await createApiClient({
    ...config,
    userAgent: `${PROGRAM}/${VERSION}`,
    env: process.env,
    clock,
    log,
    metrics,
  });
  const source = createKubernetesSource({ api, clock, random: Math.random, log });
  const name = nodeName(hostnameOverride);
  return {
    start: (sink) => source.start(sink),
    stop: async () => {
      await source.stop();
      api.close();
    },
    status: () => source.status(),
    identifyNode: (signal) => {
      void reportStarting({ node: name, program: `${PROGRAM} ${VERSION}`, api, clock, log, signal });
      return awaitNodeAddresses({ name, api, clock, random: Math.random, log, signal });
    },
  };
}

interface Observed {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Metrics;
  readonly apiStatus: () => ApiStatus | undefined;
}

function httpServers(config: Config, { log, health, metrics, apiStatus }: Observed): HttpServer[] {
  const servers = [
    { name: 'healthz', at: config.healthzAddress, routes: healthzRoutes(health, apiStatus) },
    { name: 'metrics', at: config.metricsAddress, routes: metricsRoutes(metrics) },
  ];
  return servers.flatMap(({ name, at, routes }) =>
    at === undefined ? [] : [new HttpServer({ name, ...at, routes, clock, log, maxConnections: HTTP_MAX_CONNECTIONS })],
  );
}
