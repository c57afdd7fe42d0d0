import type { RemoteInfo } from 'node:dgram';
import type { Pick } from '../../services/picker.ts';
import type { Timer } from '../../util/clock.ts';
import type { Target } from '../core/target.ts';
import { Replay } from '../replay.ts';
import type { Port } from './port.ts';
import type { LocalSocket, UdpFlow } from './udp-flow.ts';

/** Whoever begins flows. */
export interface Asking {
  readonly port: Port;
  /** A flow to the next endpoint of the replay's pick, if there is one. */
  ask(replay: UdpReplay): UdpFlow | undefined;
  /** Tells the client that nobody gets its datagram. */
  refuse(client: Omit<Asked, 'asking'>): void;
}

/** A client, and who begins its flows. */
export interface Asked {
  readonly asking: Asking;
  readonly local: LocalSocket;
  readonly remote: RemoteInfo;
}

/** The replay of one client. */
export class UdpReplay extends Replay<UdpFlow> {
  readonly local: LocalSocket;
  readonly remote: RemoteInfo;
  readonly #asking: Asking;
  #timer: Timer | undefined;

  constructor({ asking, local, remote }: Asked) {
    super(asking.port);
    this.local = local;
    this.remote = remote;
    this.#asking = asking;
  }

  keep(datagram: Buffer): void {
    if (!this.hasRoom) return;
    if (this.tryReserve(datagram.length)) this.add(datagram);
    else this.#asking.port.count('notKept');
  }

  protected get nowMs(): number {
    return this.#asking.port.thread.nowMs;
  }

  protected pick(): Pick<Target> {
    return this.#asking.port.picker.pick(this.remote.address, this.nowMs);
  }

  protected ask(): UdpFlow | undefined {
    return this.#asking.ask(this);
  }

  protected retire(flow: UdpFlow): void {
    flow.retire();
  }

  protected wait(ms: number): void {
    this.#timer?.cancel();
    this.#timer = this.#asking.port.setup.clock.after(ms, () => this.onSilence());
  }

  protected stopWaiting(): void {
    this.#timer?.cancel();
  }
}
