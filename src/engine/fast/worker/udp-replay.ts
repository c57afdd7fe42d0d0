import type { Address } from '../../../model/address.ts';
import type { Pick } from '../../../services/picker.ts';
import type { DatagramInbox, ReplyPath } from '../../../sys/datagram-inbox.ts';
import { Deadline } from '../../core/deadlines.ts';
import { Replay } from '../../replay.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import type { UdpFlow } from './udp-flow.ts';

/** Whoever begins flows. */
export interface Asking {
  readonly port: Port;
  /** A flow to the next endpoint of the replay's pick, if there is one. */
  ask(replay: UdpReplay): UdpFlow | undefined;
  /** The flow only passes on late answers from now on. */
  retire(flow: UdpFlow): void;
}

/** The replay of one client. */
export class UdpReplay extends Replay<UdpFlow> {
  readonly client: Address;
  readonly path: ReplyPath;
  readonly #asking: Asking;
  readonly #silence = new Deadline(this);

  constructor({
    asking,
    client,
    path,
  }: { readonly asking: Asking; readonly client: Address; readonly path: ReplyPath }) {
    super(asking.port);
    this.client = client;
    this.path = path;
    this.#asking = asking;
  }

  /** The flow has sent `count` datagrams from `first` on. */
  keep(inbox: DatagramInbox, first: number, count: number): void {
    this.wasSent(this.nowMs);
    for (let i = first; i < first + count && this.hasRoom; i++) {
      if (this.tryReserve(inbox.bytes(i))) this.add(inbox.copy(i));
      else this.#asking.port.count('notKept');
    }
  }

  /** The flow has sent this one. */
  keepCopy(datagram: Uint8Array): void {
    this.wasSent(this.nowMs);
    if (!this.hasRoom) return;
    if (this.tryReserve(datagram.length)) this.add(datagram);
    else this.#asking.port.count('notKept');
  }

  protected get nowMs(): number {
    return this.#asking.port.worker.nowMs;
  }

  protected pick(): Pick<Target> {
    return this.#asking.port.picker.pick(this.client, this.nowMs);
  }

  protected ask(): UdpFlow | undefined {
    return this.#asking.ask(this);
  }

  protected retire(flow: UdpFlow): void {
    this.#asking.retire(flow);
  }

  protected wait(ms: number): void {
    const { loop } = this.#asking.port.worker;
    loop.deadlines.after(ms).start(this.#silence, this.nowMs);
  }

  protected stopWaiting(): void {
    this.#silence.cancel();
  }

  onDue(): void {
    this.onSilence();
  }
}
