import type { ReplyPath } from '../../../sys/datagram-inbox.ts';
import { SysError } from '../../../sys/sys-error.ts';
import type { Errand, FlowClient, FlowSharer, Link, PassId } from './link.ts';
import type { Port } from './port.ts';
import type { FlowRecord } from './records.ts';
import type { Target } from './target.ts';
import type { UdpFlow } from './udp-flow.ts';
import { pathOf, UdpReceiver } from './udp-receiver.ts';

/**
 * Carries those flows of a Service port whose datagrams the kernel gives to this worker. The home begins each of them,
 * and gets it back when it needs another endpoint (docs/adr/0027).
 */
export class UdpCarrier extends UdpReceiver implements FlowSharer {
  readonly #home: number;

  /** Throws a SysError when a descriptor cannot be watched. */
  constructor(port: Port, { fds, home }: { readonly fds: readonly number[]; readonly home: number }) {
    const [fd, ...more] = fds;
    super(port, fd as number, more);
    this.#home = home;
  }

  /** Only the home picks. */
  ask(): undefined {
    return undefined;
  }

  retire(flow: UdpFlow): void {
    // If the home has died, nobody else knows of the flow.
    if (!flow.goHome({ hasRetired: true, isSilent: flow.target.position >= 0 })) this.flows.retire(flow);
  }

  /** The home has begun the flow, or has had it. */
  carry(record: FlowRecord, errand: Errand): void {
    const target = this.port.targetOf(record.endpoint);
    const flow = this.#resume(record, target, errand);
    // The set may have changed since the home sent it.
    if (!this.port.has(target)) flow?.leave();
    else if (flow !== undefined && target.position < 0) this.retire(flow);
    const path = pathOf(record);
    this.deliverCopies(path, this.waiting.take(path));
  }

  onWanted(link: Link, client: FlowClient): void {
    link.send({ kind: 'refused', client });
  }

  onRefused(client: FlowClient): void {
    this.waiting.take(pathOf(client));
  }

  onRecalled(link: Link, id: PassId, client: FlowClient): void {
    const flow = this.flows.at(pathOf(client));
    if (flow?.isOn(link, id)) flow.goHome({ hasRetired: false, isSilent: false });
  }

  onLinked(link: Link): void {
    if (link.worker !== this.#home) return;
    for (const { path } of this.waiting) link.send({ kind: 'want', client: this.clientAt(path) });
  }

  protected begin(path: ReplyPath, datagram: () => Uint8Array): undefined {
    if (!this.waiting.add(path, datagram())) return;
    this.port.worker.peers.to(this.#home)?.send({ kind: 'want', client: this.clientAt(path) });
  }

  #resume(record: FlowRecord, target: Target, errand: Errand): UdpFlow | undefined {
    try {
      return this.resume(record, target, { errand });
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      // Such as the kernel's limit of watches.
      this.port.listenerFailed(err.message);
      this.flows.at(pathOf(record))?.cut('proxy-error');
      return undefined;
    }
  }
}
