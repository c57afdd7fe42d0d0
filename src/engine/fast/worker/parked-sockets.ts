import { EPOLLERR } from '../../../sys/epoll.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Resource } from '../../core/shares.ts';
import type { EventLoop, Handler } from './event-loop.ts';

/** Sockets of one kind can take each other's place: one protocol, one family, and one address if they are bound. */
export type SocketKind = string;

/** Of one kind: about as many as end in one turn, and those whose last packet is under way. */
const MAX_PARKED = 128;

/** What nobody needed for so long is closed. */
const PATIENCE_MS = 1000;

/** Of one kind, the oldest first. */
interface Row {
  readonly fds: number[];
  /** How many there were at least since the last look. */
  surplus: number;
}

/**
 * Sockets towards endpoints that are not needed now. They stay watched, because a new watch costs as much as an event.
 */
export class ParkedSockets implements Handler {
  readonly #deadline = new Deadline(this);
  readonly #loop: EventLoop;
  readonly #descriptors: Pick<Resource, 'take'>;
  readonly #rows = new Map<SocketKind, Row>();
  #size = 0;

  constructor(loop: EventLoop, descriptors: Pick<Resource, 'take'>) {
    this.#loop = loop;
    this.#descriptors = descriptors;
  }

  /** False when there are enough: the socket stays the caller's. */
  park(fd: number, kind: SocketKind): boolean {
    let row = this.#rows.get(kind);
    if (row === undefined) {
      row = { fds: [], surplus: 0 };
      this.#rows.set(kind, row);
    }
    if (row.fds.length >= MAX_PARKED) return false;
    row.fds.push(fd);
    this.#count(1);
    this.#loop.renew(fd, this);
    if (!this.#deadline.isWaiting) this.#lookLater();
    return true;
  }

  /** The oldest of its kind, if it can be used again; else -1. One that cannot be used yet becomes the youngest. */
  take(kind: SocketKind, isReady: (fd: number) => boolean): number {
    const row = this.#rows.get(kind);
    const fd = row?.fds.shift();
    if (row === undefined || fd === undefined) return -1;
    if (!isReady(fd)) {
      row.fds.push(fd);
      return -1;
    }
    this.#count(-1);
    row.surplus = Math.min(row.surplus, row.fds.length);
    return fd;
  }

  get size(): number {
    return this.#size;
  }

  /** Whether there were any. */
  closeAll(): boolean {
    const size = this.#size;
    for (const row of this.#rows.values()) this.#close(row, row.fds.length);
    this.#rows.clear();
    this.#deadline.cancel();
    return size > 0;
  }

  onEvents(events: number, fd: number): void {
    // Any other tells of the end that is known.
    if (!(events & EPOLLERR)) return;
    for (const { fds } of this.#rows.values()) {
      const at = fds.indexOf(fd);
      if (at < 0) continue;
      fds.splice(at, 1);
      this.#count(-1);
      this.#loop.close(fd);
      return;
    }
  }

  onShutdown(): void {
    this.closeAll();
  }

  onDue(): void {
    for (const [kind, row] of this.#rows) {
      this.#close(row, row.surplus);
      row.surplus = row.fds.length;
      if (row.fds.length === 0) this.#rows.delete(kind);
    }
    if (this.#size > 0) this.#lookLater();
  }

  #close({ fds }: Row, count: number): void {
    for (const fd of fds.splice(0, count)) this.#loop.close(fd);
    this.#count(-count);
  }

  #count(amount: number): void {
    this.#size += amount;
    this.#descriptors.take(amount);
  }

  #lookLater(): void {
    this.#loop.startChore(this.#deadline, PATIENCE_MS);
  }
}
