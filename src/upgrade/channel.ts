import type { Parcel } from '../model/hand-over.ts';
import { close, waitReadable } from '../sys/descriptor.ts';
import { shutdownWrite, unacknowledgedBytes } from '../sys/socket.ts';
import { describeErrno, EAGAIN, ECONNRESET, EINTR, ENOBUFS, EPIPE, ETOOMANYREFS } from '../sys/sys-error.ts';
import { MAX_MESSAGE_DESCRIPTORS, UnixMessage } from '../sys/unix-socket.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { parseJson } from '../util/untrusted.ts';
import { sleep } from '../util/wait.ts';
import { type Message, type MessageOf, readMessage } from './protocol.ts';

/** How often to look while the other end is at work. Node cannot wait for a socket that it has not opened itself. */
const POLL_MS = 2;

/** The same while no message is expected, only the end of the other process. */
const LOOK_MS = 100;

/** A packet's bytes, after the first, which says whether the packet is the last of its message. */
const FRAGMENT_BYTES = 64 << 10;

/** A message is the length of a JSON text, that text, and the bytes of a parcel. */
const LENGTH_BYTES = 4;

/** Far above what either end sends, and within what a process has. */
const MAX_MESSAGE_BYTES = 512 << 20;
const MAX_DESCRIPTORS = 1 << 16;

/** The receiver must take some first. The kernel bounds the descriptors that are under way (unix(7), ETOOMANYREFS). */
const TRY_AGAIN: ReadonlySet<number> = new Set([EAGAIN, EINTR, ENOBUFS, ETOOMANYREFS]);

const NOTHING: Parcel = { fds: [], bytes: new Uint8Array(0) };

export interface Received extends Parcel {
  readonly message: Message;
}

/** When to give up on the other end. */
export interface Limits {
  /** It has neither sent nor read anything for this long. */
  readonly silenceMs?: number;
  /** The clock shows this. */
  readonly untilMs?: number;
}

/** One end of a pair of Unix sockets (SOCK_SEQPACKET, non-blocking) that carries messages with descriptors. */
export class Channel {
  /** -1 when it has been closed: the number may be another's by then. */
  #fd: number;
  readonly #clock: Clock;
  readonly #packet = new UnixMessage(1 + FRAGMENT_BYTES);
  /** How much the other end has not read yet, and since when. */
  #unread = 0;
  #unreadSinceMs = 0;
  /** Received before anybody asked for it. */
  readonly #early: Received[] = [];

  constructor(fd: number, clock: Clock) {
    this.#fd = fd;
    this.#clock = clock;
  }

  /** Resolves when the kernel has all of it. Rejects when the other end is gone or exceeds the limits. */
  async send(message: Message, limits: Limits = {}, { fds, bytes }: Parcel = NOTHING): Promise<void> {
    const text = Buffer.from(JSON.stringify(message));
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32LE(text.length);
    const payload = Buffer.concat([length, text, bytes]);
    let [sentBytes, sentFds] = [0, 0];
    do {
      const fragment = payload.subarray(sentBytes, sentBytes + FRAGMENT_BYTES);
      const someFds = fds.slice(sentFds, sentFds + MAX_MESSAGE_DESCRIPTORS);
      sentBytes += fragment.length;
      sentFds += someFds.length;
      const { data } = this.#packet;
      data.bytes[0] = sentBytes === payload.length && sentFds === fds.length ? 1 : 0;
      fragment.copy(data.bytes, 1);
      const send = () => this.#packet.send(this.#fd, 1 + fragment.length, someFds);
      await this.#retried('cannot send to the other process', send, limits);
    } while (sentBytes < payload.length || sentFds < fds.length);
  }

  /**
   * The next message; `undefined` when the other end has been closed. Rejects when the message is not valid, or the
   * other end exceeds the limits. Then the descriptors of the message have been closed.
   */
  async receive(limits: Limits = {}): Promise<Received | undefined> {
    return this.#early.shift() ?? (await this.#receive(limits));
  }

  /** Resolves when the other end has been closed, and never rejects. What it says until then can still be received. */
  async closed(): Promise<void> {
    while (this.#fd >= 0) {
      try {
        const next = await this.#receive({});
        if (next === undefined) return;
        this.#early.push(next);
      } catch {
        // Who says something that cannot be read lives still.
        await sleep(POLL_MS, this.#clock);
      }
    }
  }

  async #receive(limits: Limits): Promise<Received | undefined> {
    const fds: number[] = [];
    try {
      const payload = await this.#receivePayload(fds, limits);
      if (payload === undefined) return undefined;
      const start = LENGTH_BYTES + (payload.length < LENGTH_BYTES ? 0 : payload.readUInt32LE());
      if (payload.length < start) throw new Error('a message of the hand-over is cut short');
      const message = readMessage(parseJson(payload.toString('utf8', LENGTH_BYTES, start)));
      return { message, fds, bytes: payload.subarray(start) };
    } catch (err) {
      for (const fd of fds) close(fd);
      throw err;
    }
  }

  /** The next message, which must be of this kind and has no descriptors. A `failed` rejects with what it says. */
  async expect<Kind extends Message['kind']>(kind: Kind, limits?: Limits): Promise<MessageOf<Kind>> {
    const received = await this.receive(limits);
    if (received === undefined) throw new Error(`the other process ended before it said "${kind}"`);
    const { message, fds } = received;
    for (const fd of fds) close(fd);
    if (message.kind === 'failed') throw new Error(message.err);
    if (message.kind !== kind) throw new Error(`the other process said "${message.kind}" in place of "${kind}"`);
    return message as MessageOf<Kind>;
  }

  /** Settles as `work` does. Rejects at once when the other end, which should be silent, says something or is gone. */
  async during<T>(work: Promise<T>): Promise<T> {
    let next: Timer | undefined;
    const disturbed = new Promise<never>((_, reject) => {
      const look = (): void => {
        if (waitReadable(this.#fd, 0) === 0) next = this.#clock.after(LOOK_MS, look);
        else reject(new Error('the other process has ended'));
      };
      look();
    });
    return await Promise.race([work, disturbed]).finally(() => next?.cancel());
  }

  /** Nothing more will be said. The other end may still say something. */
  end(): void {
    shutdownWrite(this.#fd);
  }

  close(): void {
    close(this.#fd);
    this.#fd = -1;
  }

  async #receivePayload(fds: number[], limits: Limits): Promise<Buffer | undefined> {
    const fragments: Buffer[] = [];
    for (let length = 0, isLast = false; !isLast; ) {
      const receive = () => this.#packet.receive(this.#fd);
      const received = await this.#retried('cannot hear the other process', receive, limits);
      if (received === 0) {
        if (fragments.length === 0) return undefined;
        throw new Error('the other process ended in the middle of a message');
      }
      fds.push(...this.#packet.fds);
      if (this.#packet.isTruncated) {
        throw new Error('not all descriptors have arrived; raise the limit of open files (LimitNOFILE)');
      }
      const { bytes } = this.#packet.data;
      isLast = bytes[0] === 1;
      fragments.push(Buffer.from(bytes.subarray(1, received)));
      length += received;
      if (length > MAX_MESSAGE_BYTES || fds.length > MAX_DESCRIPTORS) {
        throw new Error('a message of the hand-over is longer than any should be');
      }
    }
    return Buffer.concat(fragments);
  }

  /** The result of a system call, once it has one other than "not now". */
  async #retried(
    what: string,
    call: () => number,
    { silenceMs = Infinity, untilMs = Infinity }: Limits,
  ): Promise<number> {
    this.#unreadSinceMs = this.#clock.now();
    for (;;) {
      const result = call();
      if (result >= 0) return result;
      // The other end was closed before it had read everything. Its own messages come next, and then its end.
      if (result === -ECONNRESET) continue;
      if (result === -EPIPE) throw new Error('the other process has ended');
      if (!TRY_AGAIN.has(-result)) throw new Error(`${what}: ${describeErrno(-result)}`);
      const nowMs = this.#clock.now();
      const unread = unacknowledgedBytes(this.#fd);
      if (unread !== this.#unread) this.#unreadSinceMs = nowMs;
      this.#unread = unread;
      if (nowMs - this.#unreadSinceMs >= silenceMs)
        throw new Error(`the other process stood still for ${silenceMs} ms`);
      if (nowMs >= untilMs) throw new Error('the other process did not answer in time');
      await sleep(POLL_MS, this.#clock);
    }
  }
}
