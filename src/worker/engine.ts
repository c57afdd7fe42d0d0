import type { Clock, Random } from '../contracts/clock.ts';
import { read } from '../sys/descriptor.ts';
import { EPOLLIN } from '../sys/epoll.ts';
import { Memory } from '../sys/memory.ts';
import { must, SysError } from '../sys/sys-error.ts';
import { Admission } from './admission.ts';
import { EventLoop, type Handler } from './event-loop.ts';
import { FlowBudget } from './flow-budget.ts';
import { PipePool } from './pipe-pool.ts';
import { PortState } from './port-state.ts';
import {
  type Command,
  type CountedBackends,
  type PortId,
  type Report,
  STATUS,
  STATUS_WORDS,
  type WorkerSetup,
} from './protocol.ts';
import { TcpPort } from './tcp-port.ts';
import { SCRATCH_BYTES } from './tcp-side.ts';
import { UdpBuffers } from './udp-buffers.ts';
import { UdpPort } from './udp-port.ts';
import type { WorkerContext } from './worker-context.ts';

/** Pipes of one worker: enough for the streams that are stuck at slow receivers; all others copy then. */
const MAX_PIPES = 128;

/** One Service port, whatever its protocol. */
interface Port {
  update(backends: CountedBackends): void;
  /** Stops listening and gives the descriptor back. */
  close(): void;
}

export interface EngineEffects {
  readonly clock: Clock;
  readonly random: Random;
  /** The next command, if one has come. */
  readonly receive: () => Command | undefined;
  readonly report: (report: Report) => void;
}

/** What a worker does, apart from the thread it does it in. */
export class Engine implements Handler {
  readonly loop: EventLoop;
  isStopping = false;
  readonly #context: WorkerContext;
  readonly #effects: EngineEffects;
  readonly #ports = new Map<PortId, Port>();
  readonly #status: Int32Array;
  readonly #wakeFd: number;
  readonly #wakeups = new Memory(8);
  #commandsSeen = 0;

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
      report: effects.report,
      catchUp: () => this.#catchUp(),
      admission: new Admission(loop, descriptorCeiling),
      pipes: new PipePool({ loop, max: MAX_PIPES, descriptorCeiling }),
      scratch: new Memory(SCRATCH_BYTES),
      flows: new FlowBudget(setup.status, index, options.udpMaxFlows),
      udp: new UdpBuffers(loop),
    };
    must('epoll_ctl', loop.watch(this.#wakeFd, EPOLLIN, this));
    effects.report({ kind: 'ready' });
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

  /** Resets every connection and ends every flow. Lent descriptors are given back. */
  shutdown(): void {
    this.loop.shutdown();
  }

  #catchUp(): void {
    const sent = Atomics.load(this.#status, STATUS.commands);
    if (sent === this.#commandsSeen) return;
    this.#commandsSeen = sent;
    for (let command = this.#effects.receive(); command !== undefined; command = this.#effects.receive()) {
      this.#obey(command);
    }
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
        this.#ports.get(command.port)?.close();
        this.#ports.delete(command.port);
        this.#effects.report({ kind: 'closed', port: command.port });
        return;
      case 'shutdown':
        this.isStopping = true;
    }
  }

  #open({ port: id, backends, counters, protocol, fd }: Extract<Command, { kind: 'open' }>): void {
    try {
      const state = new PortState({ id, worker: this.#context, backends, counters });
      this.#ports.set(id, protocol === 'TCP' ? new TcpPort(state, fd) : new UdpPort(state, fd));
      this.#effects.report({ kind: 'opened', port: id });
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      this.#effects.report({ kind: 'opened', port: id, err: err.message });
    }
  }
}
