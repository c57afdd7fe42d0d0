import { EPOLLIN } from '../../../sys/epoll.ts';
import { must } from '../../../sys/sys-error.ts';
import { stopReceiving } from '../listen-socket.ts';
import { Carrier } from './carrier.ts';
import type { RemoteHome } from './link.ts';
import type { Port } from './port.ts';
import type { CountedBackends } from './protocol.ts';
import type { FlowRecord } from './records.ts';
import { copies, type UdpFlow } from './udp-flow.ts';
import { type FlowClient, type FlowHost, UdpFlows, waitingRecord } from './udp-flows.ts';

/** Carries flows of a Service port that have a socket of their own. Its home has begun them (docs/adr/0037). */
export class UdpCarrier extends Carrier implements FlowHost {
  readonly fd: number;
  /** Datagrams of a flow arrive at its own socket, which it reads before it ends. */
  readonly mayHaveUnread = false;
  readonly #flows: UdpFlows;
  readonly #home: number;

  /** `fd`: the home's listener, by which replies leave. `home`: which worker that is. */
  constructor(port: Port, { fd, home }: { readonly fd: number; readonly home: number }) {
    super(port);
    this.fd = fd;
    this.#home = home;
    this.#flows = new UdpFlows(this, port);
  }

  override update(backends: CountedBackends): void {
    super.update(backends);
    this.#flows.updated();
  }

  override close(): void {
    this.#flows.cutAll();
    // Gathered replies leave by the home's socket, which closes.
    this.port.worker.replies.run();
  }

  /** Throws a SysError when a descriptor cannot be watched. */
  carry(record: FlowRecord, home: RemoteHome): void {
    this.#flows.resume(record, this.port.targetOf(record.endpoint), home);
    // The set may have changed since the home sent it.
    this.#flows.updated();
  }

  watchSocket(flow: UdpFlow, fd: number): void {
    must('epoll_ctl', this.port.worker.loop.watch(fd, EPOLLIN, flow));
  }

  readSocket(flow: UdpFlow): void {
    flow.takeQuestions();
  }

  releaseSocket({ from }: UdpFlow, fd: number): void {
    const { inbox, loop } = this.port.worker;
    stopReceiving(fd);
    loop.unwatch(fd);
    // The inbox may be in use now.
    loop.atEndOfTurn({
      run: () => {
        for (let count = inbox.receive(fd); count > 0; count = inbox.receive(fd)) {
          this.bring(from, copies(inbox, 0, count));
        }
        loop.close(fd);
      },
    });
  }

  bring(from: FlowClient, datagrams: readonly Uint8Array[]): void {
    this.port.worker.peers
      .to(this.#home)
      ?.send({ kind: 'datagrams', record: waitingRecord(this.port, from, datagrams) });
  }
}
