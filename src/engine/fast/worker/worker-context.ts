import { localPorts } from '../../../kernel/local-ports.ts';
import type { DataPlaneOptions } from '../../../model/data-plane.ts';
import { AffinityMemory } from '../../../services/affinity-memory.ts';
import type { KnownClients } from '../../../services/known-clients.ts';
import { MaglevTables } from '../../../services/schedulers/maglev-tables.ts';
import { DatagramInbox } from '../../../sys/datagram-inbox.ts';
import { lowestFreeDescriptor } from '../../../sys/descriptor.ts';
import { Memory } from '../../../sys/memory.ts';
import type { Clock, Random } from '../../../util/clock.ts';
import { Admission } from '../../core/admission.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Port, Thread } from '../../core/port.ts';
import { createShares, type Shares } from '../../core/shares.ts';
import { KeptDials } from '../../kept-dials.ts';
import { RefusalRation } from '../../refusal-ration.ts';
import { ConnectionLog } from './connection-log.ts';
import { EndpointSockets } from './endpoint-sockets.ts';
import { EventLoop, type EventLoopSetup } from './event-loop.ts';
import { KeptFlowSockets } from './kept-flow-sockets.ts';
import { ListenerBudget } from './listener-budget.ts';
import { ParkedSockets } from './parked-sockets.ts';
import { type Carrying, Peers } from './peers.ts';
import { PipePool } from './pipe-pool.ts';
import { type Command, type Report, STATUS_WORDS, type WorkerSetup } from './protocol.ts';
import { Spreading } from './spreading.ts';
import { ToldIdleCores } from './told-idle-cores.ts';
import { TurnBudget } from './turn-budget.ts';
import { UdpReplies } from './udp-replies.ts';

/** A read that fills this means bulk. One call can copy this much within the processor's second cache. */
export const SCRATCH_BYTES = 64 << 10;

/** How many pipes of one worker streams with slow receivers may hold. */
const MAX_PIPES = 128;

/** Datagrams read with one call. */
const INBOX_CAPACITY = 64;

/** All listeners together take as many in one turn: a few milliseconds. */
const ACCEPTS_PER_TURN = 128;
const DATAGRAMS_PER_TURN = 512;

/** The worker's thread, to the rest of the worker. */
export interface WorkerEffects {
  readonly clock: Clock;
  readonly random: Random;
  /** The next message, if one has come. */
  readonly receive: () => readonly Command[] | undefined;
  /** `given`: memory that goes along, in place of a copy. */
  readonly report: (reports: readonly Report[], given?: readonly ArrayBuffer[]) => void;
}

/** What all Service ports of one worker share. */
export class WorkerContext implements Thread {
  readonly index: number;
  readonly options: DataPlaneOptions;
  readonly shares: Shares;
  readonly busyPorts = new Set<Port>();
  readonly random: Random;
  readonly report: (report: Report) => void;
  /**
   * Obeys commands that have arrived. Called after a client was accepted and before its endpoint is picked, so that an
   * update holds for every later client. Cheap when there is none. It may close the caller's own port.
   */
  readonly catchUp: () => void;
  readonly status: Int32Array;
  readonly loop: EventLoop;
  readonly admission: Admission;
  readonly pipes: PipePool;
  readonly turnBudget: TurnBudget;
  readonly acceptBudget: ListenerBudget;
  readonly datagramBudget: ListenerBudget;
  readonly endpointSockets: EndpointSockets;
  /** For bytes that are received and sent on within one call. */
  readonly scratch = new Memory(SCRATCH_BYTES);
  readonly refusals: RefusalRation;
  readonly maglevTables = new MaglevTables();
  readonly affinityMemory: AffinityMemory;
  /** Each UDP port uses these two within one event. */
  readonly inbox = new DatagramInbox(INBOX_CAPACITY);
  readonly replies: UdpReplies;
  readonly keptFlowSockets: KeptFlowSockets;
  readonly connectionLog: ConnectionLog;
  readonly spreading: Spreading;
  readonly peers: Peers;

  /** Until the main thread tells, no endpoint sees a client's address. */
  clients: KnownClients | undefined;
  #keptDials: KeptDials | undefined;

  constructor(
    setup: WorkerSetup,
    { clock, random, report }: WorkerEffects,
    catchUp: () => void,
    carrying: Carrying,
    onFault: EventLoopSetup['onFault'],
  ) {
    const { index, options, wakeFds, spread } = setup;
    this.options = options;
    this.index = index;
    this.random = random;
    this.affinityMemory = new AffinityMemory(options.affinityMaxClients, wakeFds.length);
    this.report = (one) => report([one]);
    this.catchUp = catchUp;
    this.status = new Int32Array(setup.status, index * STATUS_WORDS * 4, STATUS_WORDS);
    const spreading = new Spreading({
      index,
      workers: wakeFds.length,
      status: setup.status,
      spread,
      idleCores: new ToldIdleCores(this.status, this.report),
    });
    this.spreading = spreading;
    const loop = new EventLoop({
      clock,
      owner: index + 1,
      owners: new Uint8Array(setup.owners),
      status: this.status,
      onWaited: (nowMs, waitedMs) => spreading.turn(nowMs, waitedMs),
      onFault,
    });
    this.loop = loop;
    const { taken, descriptorLimit } = setup;
    this.shares = createShares({ taken, row: index, loop, descriptorLimit, options });
    const { descriptors } = this.shares;
    this.pipes = new PipePool({ loop, max: MAX_PIPES, descriptors });
    this.turnBudget = new TurnBudget(loop);
    this.acceptBudget = new ListenerBudget(loop, ACCEPTS_PER_TURN);
    this.datagramBudget = new ListenerBudget(loop, DATAGRAMS_PER_TURN);
    const parked = new ParkedSockets(loop, descriptors);
    this.endpointSockets = new EndpointSockets(loop, parked, options, localPorts().range);
    this.keptFlowSockets = new KeptFlowSockets(loop, descriptors, () => this.keptDials);
    this.admission = new Admission({
      loop,
      shares: this.shares,
      parked: [parked, this.keptFlowSockets],
      isDescriptorFree: () => lowestFreeDescriptor() >= 0,
    });
    this.refusals = new RefusalRation(clock);
    this.replies = new UdpReplies(loop);
    this.connectionLog = new ConnectionLog(loop, this.status, this.report);
    this.peers = new Peers({ wakeFds, loop, spreading, carrying });
  }

  get clock(): Clock {
    return this.loop.clock;
  }

  get nowMs(): number {
    return this.loop.nowMs;
  }

  after(delayMs: number, run: () => void): void {
    this.loop.startChore(new Deadline({ onDue: run }), delayMs);
  }

  /** Made for the first client whose address is kept. */
  get keptDials(): KeptDials {
    this.#keptDials ??= new KeptDials({
      mark: this.options.connectionMark ?? 0,
      ports: localPorts(),
      random: this.random,
      own: (fd) => this.loop.own(fd),
    });
    return this.#keptDials;
  }
}
