import { localPorts } from '../../../kernel/local-ports.ts';
import { read } from '../../../sys/descriptor.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import { must, SysError } from '../../../sys/sys-error.ts';
import type { Clock, Random } from '../../../util/clock.ts';
import { Admission } from './admission.ts';
import { ConnectionLister } from './connection-lister.ts';
import { EndpointSockets } from './endpoint-sockets.ts';
import { EventLoop, type Handler } from './event-loop.ts';
import { FlowBudget } from './flow-budget.ts';
import { PipePool } from './pipe-pool.ts';
import { PortState } from './port-state.ts';
import {
  COUNTERS_BYTES,
  type Command,
  type CountedBackends,
  NO_PORT,
  type PortId,
  type QuestionId,
  type Report,
  STATUS,
  STATUS_WORDS,
  type WorkerSetup,
} from './protocol.ts';
import type { LiveRecord } from './records.ts';
import { TcpConnection } from './tcp-connection.ts';
import { TcpPort } from './tcp-port.ts';
import { SCRATCH_BYTES } from './tcp-side.ts';
import { TurnShare } from './turn-share.ts';
import { UdpBuffers } from './udp-buffers.ts';
import { UdpPort } from './udp-port.ts';
import type { WorkerContext } from './worker-context.ts';

/** Pipes of one worker that streams may hold which are stuck at slow receivers. */
const MAX_PIPES = 128;

/** One Service port, whatever its protocol. */
interface Port {
  readonly state: PortState;
  update(backends: CountedBackends): void;
  /** Stops listening. True when the descriptor is given back at once; otherwise `onClosed` is called in a later turn. */
  close(onClosed: () => void): boolean;
}

export interface EngineEffects {
  readonly clock: Clock;
  readonly random: Random;
  /** The next message, if one has come. */
  readonly receive: () => readonly Command[] | undefined;
  readonly report: (reports: readonly Report[]) => void;
}

/** What a worker does, apart from the thread it does it in. */
export class Engine implements Handler {
  readonly loop: EventLoop;
  isStopping = false;
  #progress: 'going on' | 'freezing' | 'frozen' | 'released' = 'going on';
  /** Who is to be told when it is frozen. */
  #frozenFor: QuestionId = 0;
  readonly #context: WorkerContext;
  readonly #effects: EngineEffects;
  readonly #ports = new Map<PortId, Port>();
  #closedPort: PortState | undefined;
  readonly #lister: ConnectionLister;
  readonly #status: Int32Array;
  readonly #wakeFd: number;
  readonly #wakeups = new Memory(8);
  #messagesSeen = 0;
  #isObeying = false;
  /** To be sent when all that has come is obeyed. */
  #answers: Report[] = [];

  /** Throws a SysError when there is no descriptor for it. */
  constructor(setup: WorkerSetup, effects: EngineEffects) {
    const { index, options, descriptorCeiling } = setup;
    this.#effects = effects;
    this.#status = new Int32Array(setup.status, index * STATUS_WORDS * 4, STATUS_WORDS);
    this.#wakeFd = setup.wakeFd;
    const loop = new EventLoop({
      clock: effects.clock,
      owner: index + 1,
      owners: new Uint8Array(setup.owners),
      status: this.#status,
    });
    this.loop = loop;
    this.#context = {
      loop,
      options,
      descriptorCeiling,
      random: effects.random,
      report: (report) => effects.report([report]),
      catchUp: () => this.#catchUp(),
      admission: new Admission(loop, descriptorCeiling),
      pipes: new PipePool({ loop, max: MAX_PIPES, descriptorCeiling }),
      share: new TurnShare(loop),
      scratch: new Memory(SCRATCH_BYTES),
      flows: new FlowBudget(setup.status, index, options.udpMaxFlows),
      udp: new UdpBuffers(loop),
      endpointSockets: new EndpointSockets(options.connectionMark, localPorts().range),
    };
    this.#lister = new ConnectionLister({
      loop,
      portOf: (port) => this.#ports.get(port)?.state,
      report: this.#context.report,
    });
    must('epoll_ctl', loop.watch(this.#wakeFd, EPOLLIN, this));
    effects.report([{ kind: 'ready' }]);
  }

  /** A command has come. */
  onEvents(): void {
    // First, so that a command that comes from now on wakes again.
    read(this.#wakeFd, this.#wakeups, 0, 8);
    this.#catchUp();
  }

  onShutdown(): void {
    this.loop.unwatch(this.#wakeFd);
  }

  /** Waits, at most for `maxWaitMs`, and handles all that is due: commands alone while it is frozen. */
  turn(maxWaitMs: number): void {
    if (this.#progress === 'frozen') {
      if (this.loop.standStill(this.#wakeFd, maxWaitMs)) this.onEvents();
      return;
    }
    this.loop.turn(maxWaitMs);
    // Not at once: the command may have come in the middle of an accept.
    if (this.#progress === 'freezing') this.#freeze();
  }

  /** Resets every connection and ends every flow, unless another process has them. Lent descriptors are given back. */
  shutdown(): void {
    if (this.#progress !== 'released') this.loop.shutdown();
  }

  #catchUp(): void {
    // A port that closes accepts its last clients, which calls this again. They get what their port has: no later command
    // changes it, and obeying the next message before the rest of this one would let the older of two updates win.
    if (this.#isObeying) return;
    const sent = Atomics.load(this.#status, STATUS.commands);
    if (sent === this.#messagesSeen) return;
    this.#messagesSeen = sent;
    this.#isObeying = true;
    for (let commands = this.#effects.receive(); commands !== undefined; commands = this.#effects.receive()) {
      for (const command of commands) this.#obey(command);
    }
    this.#isObeying = false;
    if (this.#answers.length === 0) return;
    this.#effects.report(this.#answers);
    this.#answers = [];
  }

  #obey(command: Command): void {
    switch (command.kind) {
      case 'open':
        this.#open(command);
        return;
      case 'update':
        this.#ports.get(command.port)?.update(command.backends);
        return;
      case 'close':
        this.#close(command.port);
        return;
      case 'adopt':
        this.#adopt(command);
        return;
      case 'peek':
        this.#peek(command);
        return;
      case 'list':
        this.#lister.list(command);
        return;
      case 'turn':
        this.#tellOfTurn(command.question);
        return;
      case 'freeze':
        this.#frozenFor = command.question;
        if (this.#progress === 'frozen') this.#freeze();
        else this.#progress = 'freezing';
        return;
      case 'thaw':
        this.#progress = 'going on';
        return;
      case 'release':
        this.#progress = 'released';
        this.isStopping = true;
        return;
      case 'shutdown':
        this.isStopping = true;
    }
  }

  #open({ port: id, backends, counters, protocol, fd, picker }: Extract<Command, { kind: 'open' }>): void {
    this.#answers.push({
      kind: 'opened',
      port: id,
      ...failureOf(() => {
        const state = new PortState({ id, worker: this.#context, backends, counters, drains: protocol === 'TCP' });
        this.#ports.set(id, protocol === 'TCP' ? new TcpPort(state, fd) : new UdpPort(state, fd));
        if (picker !== undefined) state.picker.restore(picker, this.loop.nowMs);
      }),
    });
  }

  #close(id: PortId): void {
    const port = this.#ports.get(id);
    this.#ports.delete(id);
    const answer: Report = { kind: 'closed', port: id };
    if (port?.close(() => this.#context.report(answer)) ?? true) this.#answers.push(answer);
  }

  #adopt({ question, records }: Extract<Command, { kind: 'adopt' }>): void {
    const finders = new Map<PortState, ReturnType<PortState['endpoints']['finder']>>();
    const failure = failureOf(() => {
      for (const record of records) {
        const port = this.#ports.get(record.port);
        const state = port?.state ?? this.#closed();
        if (record.kind === 'dialling') {
          new TcpConnection(state, record.fd).redial(record.client);
          continue;
        }
        const find = finders.get(state) ?? state.endpoints.finder();
        finders.set(state, find);
        const target = find(record.endpoint);
        if (record.kind === 'established') new TcpConnection(state, record.sides[0].fd).resume(record, target);
        else if (port instanceof UdpPort) port.resume(record, target);
      }
    });
    this.#answers.push({ kind: 'adopted', question, ...failure });
  }

  /** In place of a Service port that was closed before: nobody knows which endpoints it had. */
  #closed(): PortState {
    const counters = { memory: new SharedArrayBuffer(COUNTERS_BYTES), offset: 0 };
    const backends: CountedBackends = { endpoints: [], affinity: { type: 'None' }, fresh: [], counters };
    this.#closedPort ??= new PortState({ id: NO_PORT, worker: this.#context, backends, counters, drains: false });
    return this.#closedPort;
  }

  #peek({ question, port, client }: Extract<Command, { kind: 'peek' }>): void {
    const endpoint = this.#ports.get(port)?.state.picker.peek(client, this.loop.nowMs);
    this.#answers.push({ kind: 'peeked', question, endpoint });
  }

  #tellOfTurn(question: QuestionId): void {
    this.loop.inNextTurn({ run: () => this.#context.report({ kind: 'turned', question }) });
  }

  #freeze(): void {
    this.#progress = 'frozen';
    const records: LiveRecord[] = [];
    this.loop.forEachHandler((handler) => {
      const record = handler.describe?.();
      if (record !== undefined) records.push(record);
    });
    const pickers = [...this.#ports].flatMap(([port, { state }]) => {
      const picker = state.pickerRecord();
      return picker === undefined ? [] : [[port, picker] as const];
    });
    this.#effects.report([{ kind: 'frozen', question: this.#frozenFor, pickers, records }]);
  }
}

/** With a reason when a system call fails. */
function failureOf(attempt: () => void): { readonly err?: string } {
  try {
    attempt();
    return {};
  } catch (err) {
    if (!(err instanceof SysError)) throw err;
    return { err: err.message };
  }
}
