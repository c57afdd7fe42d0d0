import type { DataPlaneOptions } from '../../../model/data-plane.ts';
import type { Memory } from '../../../sys/memory.ts';
import type { Random } from '../../../util/clock.ts';
import type { Admission } from './admission.ts';
import type { EndpointSockets } from './endpoint-sockets.ts';
import type { EventLoop } from './event-loop.ts';
import type { FlowBudget } from './flow-budget.ts';
import type { PipePool } from './pipe-pool.ts';
import type { Report } from './protocol.ts';
import type { TurnShare } from './turn-share.ts';
import type { UdpBuffers } from './udp-buffers.ts';

/** What all Service ports of one worker share. */
export interface WorkerContext {
  readonly loop: EventLoop;
  readonly options: DataPlaneOptions;
  /** See {@link Admission}. */
  readonly descriptorCeiling: number;
  readonly random: Random;
  /**
   * Obeys commands that have come but not been heard of yet. Called between meeting a client and picking for it, so that
   * whoever comes after an update has it; cheap when there is none. The caller's own port may be closed by it.
   */
  readonly catchUp: () => void;
  readonly report: (report: Report) => void;
  readonly admission: Admission;
  readonly pipes: PipePool;
  readonly share: TurnShare;
  /** For bytes that are received and sent on within one call. */
  readonly scratch: Memory;
  readonly flows: FlowBudget;
  readonly udp: UdpBuffers;
  readonly endpointSockets: EndpointSockets;
}
