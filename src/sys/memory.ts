import { addressOf } from './calls.ts';

/**
 * Zeroed memory that the kernel reads and writes. It lives at least as long as this object: keep the object as long as
 * the kernel holds the address. Never transfer its buffer to another thread, because that would free it here.
 */
export class Memory {
  readonly bytes: Buffer;
  readonly address: number;

  constructor(size: number) {
    // Not from Buffer's shared pool. The bytes of an ArrayBuffer lie outside V8's heap and never move.
    this.bytes = Buffer.from(new ArrayBuffer(size));
    this.address = addressOf(this.bytes);
  }

  static of(bytes: Buffer): Memory {
    const memory = new Memory(bytes.length);
    memory.bytes.set(bytes);
    return memory;
  }

  get length(): number {
    return this.bytes.length;
  }

  /** The address of `length` bytes from `offset` on. Throws a RangeError unless all of them lie inside. */
  at(offset: number, length: number): number {
    if (!(offset >= 0 && length >= 0 && offset + length <= this.bytes.length)) {
      throw new RangeError(`${length} bytes at ${offset} are not inside a memory of ${this.bytes.length}`);
    }
    return this.address + offset;
  }

  /** The same bytes as 32-bit words in the machine's order. */
  words(): Int32Array {
    return new Int32Array(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length >> 2);
  }
}

/*
 * Linux structures on 64-bit machines, in bytes. All errno, O_*, SOCK_*, SO_* and MSG_* values in this folder are the
 * same on x86-64 and arm64; structures that differ are in this file. `selfCheck` proves the layouts against the running
 * kernel before they carry traffic.
 */

interface EpollEventLayout {
  readonly size: number;
  /** The offset of the 64-bit field `data`. */
  readonly data: number;
}

/** x86-64 alone packs `struct epoll_event` (uapi/linux/eventpoll.h, `EPOLL_PACKED`). */
const EPOLL_EVENT_BY_ARCH: Partial<Record<NodeJS.Architecture, EpollEventLayout>> = {
  x64: { size: 12, data: 4 },
  arm64: { size: 16, data: 8 },
};

/** Whether the layouts of this machine are known. */
export const isSupportedMachine = process.platform === 'linux' && EPOLL_EVENT_BY_ARCH[process.arch] !== undefined;

export const EPOLL_EVENT: EpollEventLayout = EPOLL_EVENT_BY_ARCH[process.arch] ?? { size: 16, data: 8 };

/** `struct iovec`: base, then length. */
export const IOVEC = { size: 16, length: 8 } as const;

/** `struct mmsghdr`: a `struct msghdr`, then the number of bytes sent or received. */
export const MMSGHDR = {
  size: 64,
  name: 0,
  nameLength: 8,
  vectors: 16,
  vectorCount: 24,
  control: 32,
  controlLength: 40,
  flags: 48,
  bytes: 56,
} as const;

/** `struct cmsghdr`; its data follows it. */
export const CMSGHDR = { size: 16, length: 0, level: 8, type: 12 } as const;
