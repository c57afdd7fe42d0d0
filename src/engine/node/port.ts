import { readdirSync } from 'node:fs';
import { descriptorLimit as ownDescriptorLimit } from '../../kernel/descriptor-limit.ts';
import type { ConnectionLogSink } from '../../model/connection-log.ts';
import type {
  Backends,
  DataPlaneObserver,
  DataPlaneOptions,
  EndpointStats,
  ListenSpec,
} from '../../model/data-plane.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import { partsOf } from '../../model/service.ts';
import { AffinityMemory } from '../../services/affinity-memory.ts';
import { MaglevTables } from '../../services/schedulers/maglev-tables.ts';
import { ECONNREFUSED, SysError } from '../../sys/sys-error.ts';
import type { Clock, Random } from '../../util/clock.ts';
import { Admission } from '../core/admission.ts';
import { Port as CorePort, type PortEvent, type Thread } from '../core/port.ts';
import { createShares, Share, ShareMemory, type Shares } from '../core/shares.ts';
import { countersOf, newCounters, Target } from '../core/target.ts';
import { RefusalRation } from '../refusal-ration.ts';
import type { Keeper } from './keeper.ts';
import type { KernelSockets } from './kernel-sockets.ts';
import { NodeLoop } from './node-loop.ts';

/** Makes the descriptor of a socket for a connection to this address. May throw. */
export type OpenSocket = (address: string, protocol: 'TCP' | 'UDP') => number;

export interface NodeDataPlaneSetup {
  readonly options: DataPlaneOptions;
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  readonly random: Random;
  /** Missing where libc cannot be called. */
  readonly kernel?: KernelSockets | undefined;
  /** The node's own addresses; by default those of its interfaces that are up. */
  readonly localAddresses?: () => readonly string[];
  /** Missing where clients' addresses cannot be kept. */
  readonly keeper?: Keeper | undefined;
  /** How sockets towards endpoints are made; by default as Node does, which cannot mark them. */
  readonly openSocket?: OpenSocket | undefined;
  /** By default this process's. Others only in tests. */
  readonly descriptorLimit?: number | undefined;
}

/** What the Service ports of one engine share. */
export class Shared implements Thread {
  readonly options: DataPlaneOptions;
  readonly clock: Clock;
  readonly random: Random;
  readonly maglevTables = new MaglevTables();
  readonly affinityMemory: AffinityMemory;
  readonly shareMemory = new ShareMemory(1);
  readonly shares: Shares;
  readonly busyPorts = new Set<CorePort>();
  readonly loop: NodeLoop;
  readonly admission: Admission;
  readonly refusals: RefusalRation;
  /** `undefined`: entries are not wanted. */
  logSink: ConnectionLogSink | undefined;
  readonly connectionLog: Thread['connectionLog'];

  constructor({ options, clock, random, descriptorLimit = ownDescriptorLimit() }: NodeDataPlaneSetup) {
    this.options = options;
    this.clock = clock;
    this.random = random;
    this.affinityMemory = new AffinityMemory(options.affinityMaxClients);
    this.shares = createShares({
      taken: this.shareMemory.all,
      row: 0,
      descriptorLimit: descriptorLimit ?? Number.POSITIVE_INFINITY,
      options,
    });
    this.shares.descriptors.take(openDescriptors());
    this.loop = new NodeLoop(clock);
    this.admission = new Admission({ loop: this.loop, shares: this.shares });
    this.refusals = new RefusalRation(clock);
    const shared = this;
    this.connectionLog = {
      get isWanted() {
        return shared.logSink !== undefined;
      },
      add: (entry) => this.logSink?.ended([entry]),
      lose: (count) => this.logSink?.lost(count),
    };
  }

  get nowMs(): number {
    return this.clock.now();
  }

  after(delayMs: number, run: () => void): void {
    this.clock.after(delayMs, run);
  }
}

/** One Service port of this engine. */
export class Port extends CorePort {
  readonly spec: ListenSpec;
  readonly setup: NodeDataPlaneSetup;
  readonly thread: Shared;
  readonly counters = newCounters();
  readonly share: Share;

  constructor(spec: ListenSpec, backends: Backends, setup: NodeDataPlaneSetup, shared: Shared) {
    super(shared, backends, { name: spec.name, protocol: spec.protocol, isHome: true, drains: true });
    this.spec = spec;
    this.setup = setup;
    this.thread = shared;
    this.share = new Share(shared.shareMemory.join(partsOf(spec.name).namespace), 0);
    this.update(backends);
  }

  get admission(): Admission {
    return this.thread.admission;
  }

  /** It is closed. Its connections go on. */
  leave(): void {
    this.thread.shareMemory.leave(partsOf(this.spec.name).namespace);
  }

  endpointStats(): readonly EndpointStats[] {
    return Array.from(this.picker.pool.all(), ({ endpoint, counters }) => ({
      endpoint,
      counters: countersOf(counters),
    }));
  }

  protected createTarget(endpoint: NamedEndpoint): Target {
    return new Target(endpoint, newCounters());
  }

  protected tell({ kind, ...event }: PortEvent): void {
    const { observer } = this.setup;
    // An event has what the observer's method of the same name takes, except for the name of the port.
    (observer[kind] as (event: object) => void).call(observer, { name: this.name, ...event });
  }
}

/** By the whole process, before this engine opens any. */
function openDescriptors(): number {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return 0;
  }
}

/** Counts as refused, as where the kernel gave the connection another port (Go's `net` package does the same). */
export function connectedToItself(): Error {
  return new SysError('connect', ECONNREFUSED);
}
