import { close } from '../sys/descriptor.ts';
import { waitReadable } from '../sys/poll.ts';
import { unacknowledgedBytes } from '../sys/socket.ts';
import { describeErrno, EAGAIN, ECONNRESET, EINTR, ENOBUFS, EPIPE, ETOOMANYREFS } from '../sys/sys-error.ts';
import { MAX_MESSAGE_DESCRIPTORS, UnixMessage } from '../sys/unix-message.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { type Message, type MessageOf, readMessage } from './protocol.ts';

/** How often to look while the other end is at work. Node cannot wait for a socket that it has not opened itself. */
const POLL_MS = 2;

/** The same while nothing is to be said, and only its end would be news. */
const LOOK_MS = 100;

/** A packet's bytes, after the first, which says whether it is the last of its message. */
const FRAGMENT_BYTES = 64 << 10;

/** The length of the JSON text, before it; the message's bytes follow it. */
const LENGTH_BYTES = 4;

/** Far above what either end sends, and within what a process has. */
const MAX_MESSAGE_BYTES = 512 << 20;
const MAX_DESCRIPTORS = 1 << 16;

/** The receiver has to take some first. The kernel bounds the descriptors that are under way (unix(7), ETOOMANYREFS). */
const TRY_AGAIN: ReadonlySet<number> = new Set([EAGAIN, EINTR, ENOBUFS, ETOOMANYREFS]);

const NO_BYTES = new Uint8Array(0);

export interface Content {
  readonly fds: readonly number[];
  readonly bytes: Uint8Array;
}

export interface Received extends Content {
  readonly message: Message;
}

/** When to give up on the other end. */
export interface Limits {
  /** It has neither sent nor read anything for so long. */
  readonly silenceMs?: number;
  /** The clock shows this. */
  readonly untilMs?: number;
}

/** One end of a pair of Unix sockets (SOCK_SEQPACKET, non-blocking), over which messages with descriptors go. */
export class Channel {
  readonly #fd: number;
  readonly #clock: Clock;
  readonly #packet = new UnixMessage(1 + FRAGMENT_BYTES);
  /** What the other end has not read yet, and since when. */
  #unread = 0;
  #unreadSinceMs = 0;

  constructor(fd: number, clock: Clock) {
    this.#fd = fd;
    this.#clock = clock;
  }

  /** Resolves when the kernel has all of it. Rejects when the other end has gone or is given up on. */
  async send(
    message: Message,
    { fds, bytes }: Content = { fds: [], bytes: NO_BYTES },
    limits: Limits = {},
  ): Promise<void> {
    const text = Buffer.from(JSON.stringify(message));
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32LE(text.length);
    const payload = Buffer.concat([length, text, bytes]);
    let [sentBytes, sentFds] = [0, 0];
    do {
      const some = payload.subarray(sentBytes, sentBytes + FRAGMENT_BYTES);
      const someFds = fds.slice(sentFds, sentFds + MAX_MESSAGE_DESCRIPTORS);
      sentBytes += some.length;
      sentFds += someFds.length;
      const isLast = sentBytes === payload.length && sentFds === fds.length;
      await this.#sendPacket(isLast, some, someFds, limits);
    } while (sentBytes < payload.length || sentFds < fds.length);
  }

  /**
   * The next message; `undefined` when the other end has been closed. Rejects when it is none, or the other end is given up
   * on. Then its descriptors have been closed.
   */
  async receive(limits: Limits = {}): Promise<Received | undefined> {
    const fds: number[] = [];
    try {
      const payload = await this.#receivePayload(fds, limits);
      if (payload === undefined) return undefined;
      const start = LENGTH_BYTES + (payload.length < LENGTH_BYTES ? 0 : payload.readUInt32LE());
      if (payload.length < start) throw new Error('a message of the hand-over is cut short');
      const message = readMessage(parse(payload.subarray(LENGTH_BYTES, start)));
      return { message, fds, bytes: payload.subarray(start) };
    } catch (err) {
      for (const fd of fds) close(fd);
      throw err;
    }
  }

  /** The same for a message that must be of this kind. A `failed` rejects with what it says. */
  async expect<Kind extends Message['kind']>(kind: Kind, limits?: Limits): Promise<MessageOf<Kind>> {
    const received = await this.receive(limits);
    if (received === undefined) throw new Error(`the other process ended before it said "${kind}"`);
    const { message, fds } = received;
    // They belong to parcels.
    for (const fd of fds) close(fd);
    if (message.kind === 'failed') throw new Error(message.err);
    if (message.kind !== kind) throw new Error(`the other process said "${message.kind}" in place of "${kind}"`);
    return message as MessageOf<Kind>;
  }

  /** Settles as the work does, in which the other end says nothing. Rejects at once when it says something or has gone. */
  async during<T>(work: Promise<T>): Promise<T> {
    let next: Timer | undefined;
    const disturbed = new Promise<never>((_, reject) => {
      const look = (): void => {
        if (waitReadable(this.#fd, 0) === 0) next = this.#clock.after(LOOK_MS, look);
        else reject(new Error('the other process has ended'));
      };
      look();
    });
    try {
      return await Promise.race([work, disturbed]);
    } finally {
      next?.cancel();
    }
  }

  close(): void {
    close(this.#fd);
  }

  async #sendPacket(isLast: boolean, bytes: Buffer, fds: readonly number[], limits: Limits): Promise<void> {
    this.#unreadSinceMs = this.#clock.now();
    const { data } = this.#packet;
    data.bytes[0] = isLast ? 1 : 0;
    bytes.copy(data.bytes, 1);
    for (;;) {
      const sent = this.#packet.send(this.#fd, 1 + bytes.length, fds);
      if (sent >= 0) return;
      if (!TRY_AGAIN.has(-sent)) throw new Error(failure('cannot send to the other process', -sent));
      await this.#wait(limits);
    }
  }

  async #receivePayload(fds: number[], limits: Limits): Promise<Buffer | undefined> {
    const fragments: Buffer[] = [];
    for (let length = 0, isLast = false; !isLast; ) {
      const fragment = await this.#receivePacket(fds, limits);
      if (fragment === undefined) {
        if (fragments.length === 0) return undefined;
        throw new Error('the other process ended in the middle of a message');
      }
      isLast = fragment[0] === 1;
      fragments.push(fragment.subarray(1));
      length += fragment.length;
      if (length > MAX_MESSAGE_BYTES || fds.length > MAX_DESCRIPTORS) {
        throw new Error('a message of the hand-over is longer than any should be');
      }
    }
    return Buffer.concat(fragments);
  }

  /** A copy of it. */
  async #receivePacket(fds: number[], limits: Limits): Promise<Buffer | undefined> {
    this.#unreadSinceMs = this.#clock.now();
    for (;;) {
      const received = this.#packet.receive(this.#fd);
      if (received === 0) return undefined;
      // It has not read all that it was sent. What it has said itself comes after that, and then its end.
      if (received === -ECONNRESET) continue;
      if (received > 0) {
        fds.push(...this.#packet.fds);
        if (this.#packet.isTruncated) {
          throw new Error('not all descriptors have arrived; raise the limit of open files (LimitNOFILE)');
        }
        return Buffer.from(this.#packet.data.bytes.subarray(0, received));
      }
      if (!TRY_AGAIN.has(-received)) throw new Error(failure('cannot hear the other process', -received));
      await this.#wait(limits);
    }
  }

  async #wait({ silenceMs = Infinity, untilMs = Infinity }: Limits): Promise<void> {
    const nowMs = this.#clock.now();
    const unread = unacknowledgedBytes(this.#fd);
    if (unread !== this.#unread) this.#unreadSinceMs = nowMs;
    this.#unread = unread;
    if (nowMs - this.#unreadSinceMs >= silenceMs) throw new Error(`the other process stood still for ${silenceMs} ms`);
    if (nowMs >= untilMs) throw new Error('the other process did not answer in time');
    await new Promise<void>((resolve) => void this.#clock.after(POLL_MS, resolve));
  }
}

function failure(what: string, errno: number): string {
  return errno === EPIPE ? 'the other process has ended' : `${what}: ${describeErrno(errno)}`;
}

function parse(text: Buffer): unknown {
  try {
    return JSON.parse(text.toString());
  } catch {
    throw new Error('a message of the hand-over is not JSON');
  }
}
