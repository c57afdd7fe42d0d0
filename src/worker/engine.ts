import type { Clock, Random } from '../contracts/clock.ts';
import { Memory } from '../sys/memory.ts';
import { Admission } from './admission.ts';
import { EventLoop } from './event-loop.ts';
import { FlowBudget } from './flow-budget.ts';
import { PipePool } from './pipe-pool.ts';
import { PortState } from './port-state.ts';
import type { Command, CountedBackends, PortId, Report, WorkerSetup } from './protocol.ts';
import { STATUS_WORDS } from './protocol.ts';
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

/** What a worker does, apart from the thread it does it in. */
export class Engine {
  readonly loop: EventLoop;
  readonly #context: WorkerContext;
  readonly #ports = new Map<PortId, Port>();

  constructor(
    setup: WorkerSetup,
    effects: { readonly clock: Clock; readonly random: Random; readonly report: (report: Report) => void },
  ) {
    const { index, options, descriptorCeiling } = setup;
    const loop = new EventLoop({
      clock: effects.clock,
      owner: index + 1,
      owners: new Uint8Array(setup.owners),
      status: new Int32Array(setup.status, index * STATUS_WORDS * 4, STATUS_WORDS),
    });
    this.loop = loop;
    this.#context = {
      loop,
      options,
      descriptorCeiling,
      random: effects.random,
      report: effects.report,
      admission: new Admission(loop, descriptorCeiling),
      pipes: new PipePool({ loop, max: MAX_PIPES, descriptorCeiling }),
      scratch: new Memory(SCRATCH_BYTES),
      flows: new FlowBudget(setup.status, index, options.udpMaxFlows),
      udp: new UdpBuffers(loop),
    };
  }

  /** Throws for what cannot be: the thread ends then, and its successor begins afresh. */
  obey(command: Exclude<Command, { kind: 'shutdown' }>): void {
    switch (command.kind) {
      case 'open': {
        const { port: id, backends, counters, protocol, fd } = command;
        const state = new PortState({ id, worker: this.#context, backends, counters });
        this.#ports.set(id, protocol === 'TCP' ? new TcpPort(state, fd) : new UdpPort(state, fd));
        return;
      }
      case 'update':
        this.#ports.get(command.port)?.update(command.backends);
        return;
      case 'close':
        this.#ports.get(command.port)?.close();
        this.#ports.delete(command.port);
        this.#context.report({ kind: 'closed', port: command.port });
    }
  }

  /** Resets every connection and ends every flow. Lent descriptors are given back. */
  shutdown(): void {
    this.loop.shutdown();
  }
}
