import type { Address } from '../../../model/address.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { Memory } from '../../../sys/memory.ts';
import { recv } from '../../../sys/socket.ts';
import { EAGAIN } from '../../../sys/sys-error.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Resource } from '../../core/shares.ts';
import type { KeptDials, KeptSource } from '../../kept-dials.ts';
import type { EventLoop, Handler, Task } from './event-loop.ts';

/** What no flow needed for so long is closed. */
export const KEPT_PATIENCE_MS = 1000;

/** A port towards an endpoint gets new flows for so long: whoever wants to forge answers must find the next one. */
const PORT_LIFE_MS = 2000;

/** Of one worker. */
const MAX_PARKED = 1024;

/** A socket of UDP flows whose endpoint sees their client's address. It handles events while it has no flow. */
export class KeptSocket implements Handler {
  readonly fd: number;
  readonly source: KeptSource;
  readonly endpoint: Endpoint;
  readonly client: Address;
  readonly beganMs: number;
  /** How long it waits for a flow. */
  readonly patience = new Deadline(this);
  readonly #sockets: KeptFlowSockets;

  constructor(
    sockets: KeptFlowSockets,
    setup: Pick<KeptSocket, 'fd' | 'source' | 'endpoint' | 'client'>,
    beganMs: number,
  ) {
    this.#sockets = sockets;
    this.fd = setup.fd;
    this.source = setup.source;
    this.endpoint = setup.endpoint;
    this.client = setup.client;
    this.beganMs = beganMs;
  }

  /** What comes now was sent to the last flow's client. */
  onEvents(): void {
    this.#sockets.giveUp(this);
  }

  onDue(): void {
    this.#sockets.giveUp(this);
  }

  onShutdown(): void {
    this.#sockets.giveUp(this);
  }
}

/**
 * Sockets whose endpoint sees a client: they are used again for flows of the same client address to the same endpoint,
 * with their entry of connection tracking. Those that end are closed at the end of a turn, after all their entries have
 * been deleted with one system call.
 */
export class KeptFlowSockets implements Task {
  readonly #loop: EventLoop;
  readonly #descriptors: Pick<Resource, 'take'>;
  readonly #dials: () => KeptDials;
  readonly #parked = new Set<KeptSocket>();
  /** The same, the oldest first. */
  readonly #rows = new WeakMap<Endpoint, Map<Address, KeptSocket[]>>();
  readonly #ended: number[] = [];
  readonly #byte = new Memory(1);

  /** `dials`: made for the first flow. */
  constructor(loop: EventLoop, descriptors: Pick<Resource, 'take'>, dials: () => KeptDials) {
    this.#loop = loop;
    this.#descriptors = descriptors;
    this.#dials = dials;
  }

  /** One that an earlier flow of this client has left: connected and watched. */
  take(endpoint: Endpoint, client: Address): KeptSocket | undefined {
    for (;;) {
      const socket = this.#rows.get(endpoint)?.get(client)?.[0];
      if (socket === undefined) return undefined;
      this.#remove(socket);
      // After a standstill its deadline is late, and its entry may have ended.
      const isDue = this.#loop.nowMs >= socket.patience.dueMs;
      if (!isDue && recv(socket.fd, this.#byte, 0, 1) === -EAGAIN) return socket;
      this.end(socket);
    }
  }

  /** In place of {@link end}, if it has no more to expect. */
  park(socket: KeptSocket): void {
    const { nowMs } = this.#loop;
    if (this.#parked.size >= MAX_PARKED || nowMs - socket.beganMs >= PORT_LIFE_MS) {
      this.end(socket);
      return;
    }
    this.#parked.add(socket);
    this.#descriptors.take(1);
    this.#rowOf(socket).push(socket);
    this.#loop.renew(socket.fd, socket);
    this.#loop.deadlines.after(KEPT_PATIENCE_MS).start(socket.patience, nowMs);
  }

  end({ fd, source }: Pick<KeptSocket, 'fd' | 'source'>): void {
    this.#dials().forgetLater(source);
    if (this.#ended.push(fd) === 1) this.#loop.atEndOfTurn(this);
  }

  giveUp(socket: KeptSocket): void {
    this.#remove(socket);
    this.end(socket);
  }

  /** Those without a flow. */
  get size(): number {
    return this.#parked.size;
  }

  /** Whether there were any without a flow. */
  closeAll(): boolean {
    const { size } = this.#parked;
    for (const socket of this.#parked) this.giveUp(socket);
    this.run();
    return size > 0;
  }

  run(): void {
    if (this.#ended.length === 0) return;
    this.#dials().forgetAll();
    for (const fd of this.#ended) this.#loop.close(fd);
    this.#ended.length = 0;
  }

  #remove(socket: KeptSocket): void {
    const { endpoint, client } = socket;
    this.#parked.delete(socket);
    this.#descriptors.take(-1);
    socket.patience.cancel();
    const clients = this.#rows.get(endpoint);
    const row = clients?.get(client);
    row?.splice(row.indexOf(socket), 1);
    if (row?.length === 0) clients?.delete(client);
  }

  #rowOf({ endpoint, client }: KeptSocket): KeptSocket[] {
    let clients = this.#rows.get(endpoint);
    if (clients === undefined) {
      clients = new Map();
      this.#rows.set(endpoint, clients);
    }
    let row = clients.get(client);
    if (row === undefined) {
      row = [];
      clients.set(client, row);
    }
    return row;
  }
}
