import { VERSION } from '../config/version.ts';
import { checkDescriptorLimit } from '../kernel/descriptor-limit.ts';
import { applyHostSettings } from '../kernel/host-settings.ts';
import type { NodeClaim } from '../kernel/node-claim.ts';
import type { SetWeight } from '../model/endpoint.ts';
import type { HandOver } from '../model/hand-over.ts';
import type { SourceEvent, Unusable } from '../model/source.ts';
import type { Operations } from '../model/view.ts';
import type { StatusLine } from '../operate/log/output.ts';
import { type StartProgress, showProgress } from '../operate/log/start-progress.ts';
import { RemovalWatch } from '../sync/removal-watch.ts';
import type { Predecessor } from '../upgrade/successor-process.ts';
import { takeOver } from '../upgrade/take-over.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import { waitUntil } from '../util/wait.ts';
import type { Context, Parts } from './assemble.ts';
import { serversOf } from './servers.ts';

/**
 * The units that wait for this service may be what its first sync waits for (an API server on this node), and systemd
 * aborts a start that takes 90 s.
 */
const PATIENCE_MS = 10_000;

export interface ProxyContext extends Context {
  readonly claim: NodeClaim;
  readonly line: StatusLine;
  /** An address of a server cannot be bound, and the configuration says that the proxy must end then. */
  readonly onUnbindable: () => void;
}

interface StoppableServer {
  start(): void;
  close(): Promise<void>;
}

/** A whole proxy: what it watches, what it carries, what it writes to the kernel, and where it answers. */
export class ServiceProxy {
  readonly #context: ProxyContext;
  readonly #parts: Parts;
  readonly #removals: RemovalWatch;
  #servers: readonly StoppableServer[] = [];
  /** When the view knows every Service. */
  #known: Promise<void> = Promise.resolve();

  constructor(context: ProxyContext, parts: Parts) {
    this.#context = context;
    this.#parts = parts;
    this.#removals = new RemovalWatch(context.log);
  }

  /** Missing when the engine cannot pass on what it has. */
  get handOver(): HandOver | undefined {
    return this.#parts.dataPlane.handOver;
  }

  /** It has an API server, and does not follow it now. */
  get isOffline(): boolean {
    return this.#parts.apiStatus()?.connected === false;
  }

  /** The weights that an operator has set. */
  weights(): readonly SetWeight[] {
    return this.#parts.weights.list();
  }

  /** Parts that this process cannot use either (a volume that is not mounted) may look empty to a successor. */
  keptOf(unusable: readonly Unusable[]): readonly Unusable[] {
    const { source } = this.#parts;
    return [...unusable, ...source.unusable()].filter((each) => source.serves(each));
  }

  /** Rejects with a sentence when the source cannot start. */
  async start(): Promise<void> {
    const { config, line, log, signal } = this.#context;
    const { nodeWatch, controlPlane, source } = this.#parts;
    const progress = () => this.#progress();
    showProgress({ line, format: config.log.format, env: process.env, log, clock, progress, signal });
    nodeWatch.start();
    controlPlane.start();
    await source.start({ apply: (events) => this.#apply(events), synced: () => controlPlane.synced() });
    source.state?.fallBackLater();
    await this.#serve();
  }

  /**
   * Starts with all that a predecessor had, in place of {@link start}. When it rejects, with a sentence, the
   * predecessor serves: end this process, and close nothing in order.
   */
  async takeOver({ channel, isOffline }: Predecessor): Promise<void> {
    const { log, signal } = this.#context;
    const { nodeWatch, controlPlane, source, dataPlane, weights } = this.#parts;
    nodeWatch.start();
    try {
      // Rules and listeners are the predecessor's until it releases them, so the control plane is not synced before.
      const lists = new Promise<void>((resolve, reject) => {
        source.start({ apply: (events) => this.#apply(events), synced: resolve }).catch(reject);
      });
      // Who follows the server may know more than the file, so it is for a server that nobody follows.
      if (isOffline) source.state?.fallBackLater();
      const known = lists.then(async (): Promise<readonly Unusable[]> => {
        // Or connections to pods at new addresses would have no endpoint here.
        await source.state?.settled();
        return [...source.unusable()];
      });
      await takeOver(channel, {
        dataPlane: dataPlane.handOver,
        program: VERSION,
        known,
        onAdopted: (ports, set) => {
          controlPlane.adopt(ports);
          weights.replace(set);
        },
      });
    } catch (error) {
      throw new Error(`cannot take over from a predecessor: ${messageOf(error)}`);
    }
    dataPlane.handOver?.thaw();
    controlPlane.start();
    controlPlane.synced();
    await dataPlane.handOver?.atWork();
    log.info('Took over from the predecessor', { ports: [...dataPlane.stats()].length });
    // The predecessor answered operators until now, so none of its Services may seem to be gone.
    this.#known = waitUntil(() => controlPlane.hasCaughtUp, PATIENCE_MS, clock, signal);
    await this.#serve();
  }

  /**
   * Resolves when the rules of all families lead to listeners for the first time, or have not for ten seconds from when
   * a state on disk would have been served.
   */
  async firstSync(): Promise<void> {
    const { served, health } = this.#parts;
    const families = served.active;
    const { waitMs = 0 } = this.#context.config.state ?? {};
    const isDone = () => families.every((family) => health.lastUpdated(family) !== undefined);
    await waitUntil(isDone, PATIENCE_MS + waitMs, clock, this.#context.signal);
  }

  /** Resolves when nothing is opened, updated, closed or written to the kernel any more, and no address is bound. */
  async pause(): Promise<void> {
    const { controlPlane, healthCheckNodePorts, source, wakeCalls } = this.#parts;
    await source.state?.keeper.stop();
    // A sync that is under way may take long: the servers answer until it is over.
    await controlPlane.pause();
    wakeCalls?.stop();
    healthCheckNodePorts.pause();
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  /** Continues as before {@link pause}. */
  resume(): void {
    this.#parts.source.state?.keeper.start();
    this.#parts.controlPlane.resume();
    this.#parts.healthCheckNodePorts.resume();
    this.#parts.wakeCalls?.start();
    this.#startServers();
  }

  /** Ends all connections. The rules stay. */
  async stop(): Promise<void> {
    const { source, controlPlane, healthCheckNodePorts, sampler, dataPlane, dataPlaneLog, connectionLog } = this.#parts;
    this.#parts.wakeCalls?.stop();
    await this.saveState();
    await source.stop();
    await Promise.all([controlPlane.stop(), ...this.#servers.map((server) => server.close())]);
    healthCheckNodePorts.pause();
    sampler.stop();
    await dataPlane.shutdown();
    await connectionLog?.close();
    dataPlaneLog.close();
  }

  /** Resolves when what `--state-dir` is to have is there, or cannot be written. */
  async saveState(): Promise<void> {
    await this.#parts.source.state?.keeper.flush();
  }

  /** Another process has taken over everything: this one's copies are closed. */
  async release(): Promise<void> {
    await this.handOver?.release();
    await this.#parts.connectionLog?.close();
    this.#parts.dataPlaneLog.close();
  }

  /** Somebody has renamed its file. */
  reopenConnectionLog(): void {
    this.#parts.connectionLog?.reopen();
  }

  #progress(): StartProgress {
    const { source, controlPlane, health } = this.#parts;
    const { server } = source;
    const { active, isSynced } = controlPlane;
    return {
      api: server === undefined ? undefined : { server, hasAnswered: source.status?.().lastContactAt !== undefined },
      isSynced,
      // Each family looks at every Service, and nearly all of them are of the first.
      pendingServices: active[0]?.tracker.pendingServices ?? 0,
      wantedPorts: active.reduce((sum, { listeners }) => sum + listeners.count, 0),
      openListeners: active.reduce((sum, { listeners }) => sum + listeners.openCount, 0),
      isReady: active.every(({ family }) => health.lastUpdated(family) !== undefined),
    };
  }

  #apply(events: readonly SourceEvent[]): void {
    const { controlPlane } = this.#parts;
    const services = events.filter(({ kind }) => kind === 'Service').length;
    // Families share the count.
    const [primary] = controlPlane.active;
    primary?.metrics.changed('service', services);
    primary?.metrics.changed('endpoint', events.length - services);
    controlPlane.apply(events);
    this.#removals.apply(events);
  }

  /** What waits until the start can no longer be refused, and until iptables has loaded conntrack. */
  async #serve(): Promise<void> {
    const { config, log } = this.#context;
    const { sampler, capture, served, source, node, nodeWatch, controlPlane, wakeCalls } = this.#parts;
    sampler.start();
    wakeCalls?.start();
    log.info(`Packets for Services are captured by ${capture.method.description}`, { why: capture.why });
    await served.report();
    applyHostSettings(config.host, log);
    checkDescriptorLimit(config.dataPlane.udpMaxFlows, log);
    source.followNode?.((status) => {
      node.set(status);
      nodeWatch.look();
    });
    source.followServiceCidrs?.((blocks) => controlPlane.dropUnassigned(blocks));
    source.state?.keeper.start();
    this.#startServers();
  }

  #startServers(): void {
    const { config, claim, log, onUnbindable, configuration } = this.#context;
    const { health, metrics, apiStatus, view, node, weights, feed } = this.#parts;
    const nodeEligible = () => node.isEligible;
    const known = this.#known;
    const operations: Operations = {
      setVerbosity: (verbosity) => log.setVerbosity(verbosity),
      weightOf: (endpoint) => weights.of(endpoint),
      setWeight: (endpoint, weight) => weights.set(endpoint, weight),
      undrain: (endpoint) => weights.undrain(endpoint),
    };
    const answering = { log, health, metrics, apiStatus, view, nodeEligible, operations, feed, known };
    this.#servers = [claim, ...serversOf(config, { ...answering, onUnbindable, configuration })];
    for (const server of this.#servers) server.start();
  }
}
