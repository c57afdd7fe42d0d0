import { calls, result } from './calls.ts';
import type { ReplyPath } from './datagram-inbox.ts';
import {
  CONTROL_WORDS,
  cannotSegment,
  HEADER_WORDS,
  NAME_WORDS,
  runLength,
  SEGMENT_CONTROL_BYTES,
  Slots,
  slotData,
  writeSegmentControl,
} from './datagram-slots.ts';
import { MMSGHDR } from './memory.ts';
import { EAGAIN } from './sys-error.ts';

/** Datagrams that are sent with one header. */
interface Run {
  readonly path: ReplyPath;
  readonly first: number;
  readonly count: number;
}

/**
 * Replies to clients: received directly into the slots that they are sent from, a few at a time from each flow, and
 * sent together.
 */
export class DatagramOutbox {
  readonly #capacity: number;
  readonly #incoming: Slots;
  readonly #outgoing: Slots;
  /** By header. */
  readonly #runs: Run[] = [];
  #used = 0;

  constructor(capacity: number) {
    const data = slotData(capacity);
    this.#capacity = capacity;
    this.#incoming = new Slots({ capacity, data, isAddressed: false });
    this.#outgoing = new Slots({ capacity, data, isAddressed: true });
  }

  /** The number of free slots. */
  get room(): number {
    return this.#capacity - this.#used;
  }

  /** Receives up to `max` (at most {@link room}) datagrams at a connected socket. Their number, or a negative errno. */
  receive(fd: number, max: number): number {
    const headers = this.#incoming.headers.at(this.#used * MMSGHDR.size, max * MMSGHDR.size);
    return result(calls.recvmmsg(fd, headers, max, 0, 0));
  }

  /** Addresses the `count` datagrams of the last {@link receive} as replies. Returns their bytes. */
  direct(count: number, path: ReplyPath): number {
    const end = this.#used + count;
    let bytes = 0;
    while (this.#used < end) {
      const first = this.#used;
      const length = path.canSegment ? runLength(first, end, (i) => this.#incoming.bytes(i)) : 1;
      for (let i = first; i < first + length; i++) {
        bytes += this.#incoming.bytes(i);
        this.#outgoing.setLength(i, this.#incoming.bytes(i));
      }
      this.#address(this.#runs.length, { path, first, count: length });
      this.#used += length;
    }
    return bytes;
  }

  /**
   * Sends everything. Returns how many were dropped for lack of buffer space; other failures concern single replies.
   */
  flush(fd: number): number {
    const runs = this.#runs.length;
    let lost = 0;
    for (let i = 0; i < runs; ) {
      const sent = result(calls.sendmmsg(fd, this.#outgoing.headers.address + i * MMSGHDR.size, runs - i, 0));
      if (sent > 0) {
        i += sent;
        continue;
      }
      if (sent === -EAGAIN) {
        for (; i < runs; i++) lost += this.#runs[i]?.count ?? 0;
        break;
      }
      if (cannotSegment(sent)) this.#sendOneByOne(fd, i);
      i++;
    }
    this.#runs.length = 0;
    this.#used = 0;
    return lost;
  }

  #address(i: number, run: Run): void {
    const { path, first, count } = run;
    const { headerWords, nameWords, controlWords } = this.#outgoing;
    this.#runs[i] = run;
    this.#outgoing.cover(i, first, count);
    const control = i * CONTROL_WORDS;
    copyWords(path.name, nameWords, i * NAME_WORDS);
    copyWords(path.control, controlWords, control);
    let controlBytes = path.control.length * 4;
    if (count > 1) {
      writeSegmentControl(controlWords, control + path.control.length, this.#incoming.bytes(first));
      controlBytes += SEGMENT_CONTROL_BYTES;
    }
    headerWords[i * HEADER_WORDS + MMSGHDR.nameLength / 4] = path.name.length * 4;
    headerWords[i * HEADER_WORDS + MMSGHDR.controlLength / 4] = controlBytes;
  }

  /** The kernel refused header `i` as a run, and would refuse further runs on this path. */
  #sendOneByOne(fd: number, i: number): void {
    const { path, first, count } = this.#runs[i] as Run;
    if (count === 1) return;
    path.canSegment = false;
    for (let slot = first; slot < first + count; slot++) {
      this.#address(i, { path, first: slot, count: 1 });
      calls.sendmmsg(fd, this.#outgoing.headers.address + i * MMSGHDR.size, 1, 0);
    }
  }
}

/** A loop, because `set` costs more for so few words. */
function copyWords(from: Int32Array, to: Int32Array, at: number): void {
  for (let i = 0; i < from.length; i++) to[at + i] = from[i] as number;
}
