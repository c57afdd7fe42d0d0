import type { Config } from '../config/config.ts';
import type { FlagTexts } from '../config/evaluate.ts';
import { VERSION } from '../config/version.ts';
import { applyHostSettings } from '../kernel/host-settings.ts';
import { NodeClaim } from '../kernel/node-claim.ts';
import { checkDescriptorLimit, endProcess, leaveProcess } from '../kernel/process.ts';
import { ServiceManager } from '../kernel/service-manager.ts';
import type { Operations } from '../model/operations.ts';
import { awaitSupervision } from '../upgrade/take-over.ts';
import { Upgrade } from '../upgrade/upgrade.ts';
import { systemClock as clock, machineUptimeMs } from '../util/system-clock.ts';
import { assemble } from './assemble.ts';
import { openLog, openStatusLine } from './commands.ts';
import { caughtUp, firstSync } from './first-sync.ts';
import { httpServers } from './http-servers.ts';
import { openControl } from './open-control.ts';
import { showProgress } from './show-progress.ts';
import { startTime } from './start-time.ts';
import { openChannelToPredecessor, succeed, upgradeMeans } from './succession.ts';
import { watchConfiguration } from './watch-configuration.ts';

/** A stop that takes longer than this is cut short: the rules stay in any case, and systemd would kill us later. */
const STOP_DEADLINE_MS = 10_000;

export interface Run {
  readonly config: Config;
  readonly warnings: readonly string[];
  readonly flags: FlagTexts;
  /** The text of the file of `--config`. */
  readonly configuration: string;
}

/** Resolves once everything is running. Rejects with a sentence for the user when it cannot start. */
export async function run({ config, warnings, flags, configuration }: Run): Promise<void> {
  const line = openStatusLine();
  const log = openLog(config.log, line);
  for (const warning of warnings) log.warn(warning);
  process.on('uncaughtException', (error) => {
    // One connection's fault must not end all the others.
    log.error('An unexpected error; please report it', { err: error.stack ?? String(error) });
  });
  let stop = async (signal: NodeJS.Signals | undefined, code = 0): Promise<void> => {
    log.info('Stopping while still starting', { signal });
    await log.flush();
    await endProcess(code);
  };
  const stopOnSignals = () => {
    for (const each of ['SIGTERM', 'SIGINT'] as const) process.on(each, () => void stop(each));
  };
  // From the beginning, as a signal that nobody handles ends the process, which may be a successor already.
  process.on('SIGHUP', () => {
    if (stopping) return;
    if (upgrade === undefined) log.warn('This process is still starting; this request to upgrade is dropped');
    else void upgrade.run();
  });
  const startedAt = startTime(clock);
  let stopping = false;
  let upgrade: Upgrade | undefined;

  const stopped = new AbortController();
  const { signal } = stopped;

  const claim = new NodeClaim(log);
  const predecessor = await openChannelToPredecessor();
  if (predecessor === undefined) {
    // Process 1 of a container ignores what nobody handles. A successor is never that, and is to end at once: in the midst
    // of a hand-over the next step costs connections.
    stopOnSignals();
    // Before anything is touched. What a predecessor has claimed comes with the rest.
    await claim.take();
  }

  const parts = await assemble(config, { log, startedAt, signal });
  const { node, ability, dataPlane, source, controlPlane, lookAtNode, drains } = parts;
  const { health, healthCheckNodePorts, metrics, apiStatus, view, sampler } = parts;

  if (predecessor === undefined) {
    const { format } = config.log;
    showProgress({ line, format, env: process.env, clock, source, controlPlane, health, signal });
    controlPlane.start();
    await source.start(controlPlane);
  } else {
    await succeed(predecessor, { source, controlPlane, dataPlane, drains });
    log.info('Took over from the predecessor', { ports: [...dataPlane.stats()].length });
  }
  sampler.start();
  // Once the start can no longer be refused, and after iptables, which has loaded conntrack.
  const families = controlPlane.active.map(({ family }) => family);
  await ability.tell(families);
  applyHostSettings(config.host, log);
  checkDescriptorLimit(config.dataPlane.udpMaxFlows, log);
  source.followNode?.((status) => {
    node.set(status);
    lookAtNode();
  });
  const operations: Operations = {
    setVerbosity: (verbosity) => log.setVerbosity(verbosity),
    drain: (endpoint) => drains.drain(endpoint),
    undrain: (endpoint) => drains.undrain(endpoint),
  };
  // A predecessor has told operators of its Services until now; none of them is to seem to be gone.
  const known = predecessor === undefined ? Promise.resolve() : caughtUp(controlPlane, { clock, signal });
  const startServers = () => {
    const control = openControl({ path: config.controlSocket, view, operations, known, log, clock });
    const started = [claim, ...httpServers(config, observed), ...control];
    for (const server of started) server.start();
    return started;
  };
  const observed = {
    ...{ log, health, metrics, apiStatus, view },
    nodeEligible: () => node.isEligible,
    onUnbindable: () => void stop(undefined, 1),
  };
  let servers = startServers();
  const supervisor = new ServiceManager({
    ...{ env: process.env, pid: process.pid, isSuccessor: predecessor !== undefined },
    ...{ clock, uptimeMs: machineUptimeMs, log },
  });
  stop = async (reason, code = 0) => {
    if (stopping) return;
    stopping = true;
    stopped.abort();
    log.info('Stopping; the rules stay, so that a successor finds them', { signal: reason });
    clock.after(STOP_DEADLINE_MS, () => void endProcess(code));
    await supervisor.stopping();
    await upgrade?.abandon();
    await source.stop();
    await Promise.all([controlPlane.stop(), ...servers.map((server) => server.close())]);
    healthCheckNodePorts.pause();
    sampler.stop();
    await dataPlane.shutdown();
    parts.dataPlaneLog.close();
    await log.flush();
    await endProcess(code);
  };
  if (predecessor !== undefined) {
    stopOnSignals();
    await awaitSupervision(predecessor);
  }
  upgrade = new Upgrade({
    clock,
    log,
    supervisor,
    pid: process.pid,
    means: await upgradeMeans(dataPlane),
    controlPlane: {
      pause: async () => {
        // A sync that is going on may take long: until it is over, nobody is to miss anything.
        await controlPlane.pause();
        healthCheckNodePorts.pause();
        await Promise.all(servers.map((server) => server.close()));
      },
      resume: () => {
        controlPlane.resume();
        healthCheckNodePorts.resume();
        servers = startServers();
      },
      drained: () => drains.list(),
    },
    onReleased: async () => {
      clock.after(STOP_DEADLINE_MS, () => void leaveProcess(0));
      await dataPlane.handOver?.release();
      parts.dataPlaneLog.close();
      await log.flush();
      await leaveProcess(0);
    },
  });
  if (config.configFile !== undefined) {
    // Elsewhere, whatever runs this process would take the end of it for the end of the proxy, so it might as well end.
    const canHandOver = dataPlane.handOver !== undefined && process.env['NOTIFY_SOCKET'] !== undefined;
    const onUpdate = () => void (canHandOver ? upgrade?.run() : stop(undefined, 1));
    watchConfiguration({ path: config.configFile, flags, configuration, log, onUpdate });
  }
  log.info('Started', { version: VERSION, node: process.version });
  // What is started after this one is to find its Services.
  if (predecessor === undefined) await firstSync({ families, health, clock, signal });
  if (!signal.aborted) await supervisor.ready();
}
