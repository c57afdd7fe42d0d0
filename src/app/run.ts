import { dirname } from 'node:path';
import { isatty } from 'node:tty';
import type { Config } from '../config/config.ts';
import type { FlagTexts } from '../config/configure.ts';
import { configure } from '../config/configure.ts';
import { VERSION } from '../config/version.ts';
import { isTrusted, NodeClaim, nodeHolder } from '../kernel/node-claim.ts';
import { endProcess, leaveProcess } from '../kernel/process.ts';
import { makeSafeDirectory } from '../kernel/safe-directory.ts';
import { ServiceManager } from '../kernel/service-manager.ts';
import { becomeStandIn } from '../kernel/stand-in.ts';
import { createLog, type ProcessLog } from '../operate/log/log.ts';
import { descriptorOutput, StatusLine } from '../operate/log/output.ts';
import { CHANNEL_VARIABLE } from '../upgrade/protocol.ts';
import type { Greeting, Predecessor } from '../upgrade/successor-process.ts';
import { awaitSupervision } from '../upgrade/take-over.ts';
import { Upgrade, type UpgradeOptions } from '../upgrade/upgrade.ts';
import { collectGarbage } from '../util/garbage.ts';
import { systemClock as clock, machineUptimeMs, startTime } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import { assemble } from './assemble.ts';
import { ConfigurationWatch } from './configuration-watch.ts';
import { ServiceProxy } from './proxy.ts';

const STDERR = 2;

/** A stop that takes longer than this is cut short: the rules stay in any case, and systemd would kill us later. */
const STOP_DEADLINE_MS = 10_000;

/** Each look at who wants to take over costs a few system calls. */
const LOOK_MS = 100;

export interface Run {
  readonly config: Config;
  readonly warnings: readonly string[];
  readonly flags: FlagTexts;
  /** The text of the file of `--config`. */
  readonly configuration: string;
}

/** Resolves once everything is running. Rejects with a sentence for the user when it cannot start. */
export async function run(asked: Run): Promise<void> {
  await new ProxyProcess(asked).start();
}

/** A proxy as a process: signals, the supervisor, and the way from one process to the next. */
class ProxyProcess {
  readonly #asked: Run;
  /** Some terminals say that they have no columns. */
  readonly #line = new StatusLine(descriptorOutput(STDERR), () => process.stderr.columns || 80);
  readonly #log: ProcessLog;
  readonly #startedAt = startTime(clock);
  readonly #stopped = new AbortController();
  /** From when it serves. */
  #proxy: ServiceProxy | undefined;
  #reopenLogs = (): void => {};
  #supervisor: ServiceManager | undefined;
  #upgrade: Upgrade | undefined;
  #isLooking = false;
  /** Missing without `--config`. */
  readonly #configuration: ConfigurationWatch | undefined;

  constructor(asked: Run) {
    const { config, flags, configuration: text } = asked;
    this.#asked = asked;
    this.#log = createLog({ ...config.log, output: this.#line, clock });
    if (config.configFile !== undefined) {
      this.#configuration = new ConfigurationWatch({
        path: config.configFile,
        text,
        check: (changed) => configure(flags, () => changed),
        replace: () => this.#reconfigure(),
        clock,
        log: this.#log,
        signal: this.#stopped.signal,
      });
    }
  }

  async start(): Promise<void> {
    const { config, warnings } = this.#asked;
    const log = this.#log;
    for (const warning of warnings) log.warn(warning);
    process.on('uncaughtException', (error) => {
      // One connection's fault must not end all the others.
      log.error('An unexpected error; please report it', { err: error.stack ?? String(error) });
    });
    // From the beginning: a signal without a handler ends the process, which may be a successor already.
    const hangsUp = isOnTerminal(process.env);
    process.on('SIGHUP', () => {
      if (hangsUp) void this.#stop('SIGHUP');
      else this.#replace();
    });
    process.on('SIGUSR2', () => this.#reopenLogs());
    const claim = new NodeClaim(log);
    const parent = await findPredecessor();
    // Process 1 of a container ignores signals without a handler. Who was started to take over must end at once: in the
    // middle of a hand-over the next step costs connections.
    if (parent === undefined) this.#stopOnSignals();
    // Before anything is touched. A predecessor's claim is handed over with the rest.
    const predecessor = parent ?? (await this.#claim(claim));
    const { signal } = this.#stopped;
    const onUnbindable = () => void this.#stop(undefined, 1);
    const common = { config, log, startedAt: this.#startedAt, signal, configuration: this.#configuration };
    const parts = await assemble(common);
    const proxy = new ServiceProxy({ ...common, claim, line: this.#line, onUnbindable }, parts);
    this.#reopenLogs = () => proxy.reopenConnectionLog();
    if (predecessor === undefined) await proxy.start();
    else await proxy.takeOver(predecessor);
    const supervisor = new ServiceManager({
      env: process.env,
      pid: process.pid,
      isSuccessor: predecessor !== undefined,
      clock,
      uptimeMs: machineUptimeMs,
      log,
    });
    this.#proxy = proxy;
    this.#supervisor = supervisor;
    if (parent !== undefined) this.#stopOnSignals();
    if (predecessor !== undefined) await awaitSupervision(predecessor.channel);
    this.#upgrade = new Upgrade({
      clock,
      log,
      supervisor,
      pid: process.pid,
      controlPlane: proxy,
      means: await upgradeMeans(proxy),
      onReleased: async () => {
        clock.after(STOP_DEADLINE_MS, () => void leaveProcess(0));
        await proxy.release();
        await log.flush();
        if (process.pid === 1) await becomeStandIn();
        await leaveProcess(0);
      },
    });
    claim.onKnock = () => this.#knocked(proxy);
    this.#configuration?.start();
    log.info('Started', { version: VERSION, node: process.version });
    // Units that start after this one find its Services.
    if (predecessor === undefined) await proxy.firstSync();
    if (!signal.aborted) await supervisor.ready();
    await giveBackMemory();
  }

  /** Resolves with the process that has the node, if that hands over. Rejects when it does not. */
  async #claim(claim: NodeClaim): Promise<Predecessor | undefined> {
    const { handOverSocket: path } = this.#asked.config;
    if (path === undefined || (await nodeHolder()) === undefined) {
      await claim.take();
      return undefined;
    }
    const { meetHolder } = await import('../upgrade/newcomer.ts');
    const holder = await meetHolder(meetingAt(path), () => nodeHolder());
    // It may have ended meanwhile.
    if (holder === undefined) await claim.take();
    else this.#log.info('Taking over from the process that serves this node', { at: path });
    return holder;
  }

  /** Somebody may wait to take over. Anybody can knock, so that is looked at now and then. */
  #knocked(proxy: ServiceProxy): void {
    const { handOverSocket: path } = this.#asked.config;
    if (path === undefined || this.#isLooking) return;
    this.#isLooking = true;
    clock.after(LOOK_MS, async () => {
      this.#isLooking = false;
      try {
        await this.#admit(path, proxy);
      } catch (error) {
        this.#log.warn('Who wants to take over cannot be heard', { at: path, err: messageOf(error) });
      }
    });
  }

  async #admit(path: string, proxy: ServiceProxy): Promise<void> {
    const { newcomerAt } = await import('../upgrade/newcomer.ts');
    const newcomer = await newcomerAt(meetingAt(path), () => greeting(proxy));
    if (newcomer !== undefined) await this.#upgrade?.handOverTo(newcomer);
  }

  #stopOnSignals(): void {
    for (const each of ['SIGTERM', 'SIGINT'] as const) process.on(each, () => void this.#stop(each));
  }

  async #stop(signal: NodeJS.Signals | undefined, code = 0): Promise<void> {
    if (this.#stopped.signal.aborted) return;
    if (this.#proxy === undefined) {
      this.#log.info('Stopping while still starting', { signal });
    } else {
      this.#stopped.abort();
      this.#log.info('Stopping; the rules stay for the next start, and kube-userspace-proxy --cleanup removes them', {
        signal,
      });
      clock.after(STOP_DEADLINE_MS, () => void endProcess(code));
      await this.#supervisor?.stopping();
      await this.#upgrade?.abandon();
      await this.#proxy.stop();
    }
    await this.#log.flush();
    await endProcess(code);
  }

  #replace(): void {
    if (this.#stopped.signal.aborted) return;
    if (this.#upgrade !== undefined) void this.#upgrade.run();
    else this.#log.warn('This process is still starting; this request to upgrade is dropped');
  }

  /** Has a new process serve with the file of `--config` as it is now. Resolves when that has failed. */
  async #reconfigure(): Promise<void> {
    // A supervisor other than systemd would take the end of this process for the end of the proxy, so it ends at once.
    const canHandOver = process.env['NOTIFY_SOCKET'] !== undefined && process.pid !== 1;
    if (canHandOver && this.#proxy?.handOver !== undefined) await this.#upgrade?.run();
    else await this.#stop(undefined, 1);
  }
}

/** `undefined` unless a predecessor has started this process. Rejects with a sentence for the user. */
async function findPredecessor(): Promise<Predecessor | undefined> {
  if (process.env[CHANNEL_VARIABLE] === undefined) return undefined;
  const upgrade = await import('../upgrade/successor-process.ts');
  return await upgrade.findPredecessor(process.env, clock);
}

/** `undefined` when the engine cannot pass on what it has. */
async function upgradeMeans(proxy: ServiceProxy): Promise<UpgradeOptions['means']> {
  const { handOver } = proxy;
  if (handOver === undefined) return undefined;
  // Only here, as it needs koffi, without which the portable engine works too. Not later, as another program may have
  // taken the place of this one on disk when an upgrade is requested.
  const { startSuccessor } = await import('../upgrade/successor-process.ts');
  return { dataPlane: handOver, startSuccessor: async () => await startSuccessor(await greeting(proxy), clock) };
}

function meetingAt(path: string) {
  const guard = () => makeSafeDirectory(dirname(path), '--hand-over-socket');
  return { path, guard, isTrusted, clock };
}

/** What a successor hears first. It finds the last state, should a manifest file be broken, or the API server away. */
async function greeting(proxy: ServiceProxy): Promise<Greeting> {
  await proxy.saveState();
  return { program: VERSION, isOffline: proxy.isOffline };
}

/** Gives back what a burst of work has left in V8's heap and in malloc's. */
async function giveBackMemory(): Promise<void> {
  collectGarbage();
  // Where koffi's addon cannot be loaded, malloc keeps it.
  await import('../sys/calls.ts').then(({ callsAside }) => callsAside.malloc_trim(0)).catch(() => {});
}

/**
 * A person has started this process, and SIGHUP says that the terminal has closed. `nohup`, which wants the opposite,
 * leaves no terminal on these three; Node does not show whether SIGHUP was ignored.
 */
function isOnTerminal(env: NodeJS.ProcessEnv): boolean {
  return env['NOTIFY_SOCKET'] === undefined && [0, 1, 2].some((fd) => isatty(fd));
}
