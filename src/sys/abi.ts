/*
 * Linux structures on 64-bit machines, in bytes. Errno, O_*, SOCK_*, SO_* and MSG_* values that are used here are the
 * same on x86-64 and arm64; where a structure differs, it does so in this file and nowhere else. `selfCheck` proves
 * the layouts against the running kernel before any of them carries traffic.
 */

interface EpollEventLayout {
  readonly size: number;
  /** Of the 64-bit field `data`. */
  readonly data: number;
}

/** x86-64 alone packs `struct epoll_event` (uapi/linux/eventpoll.h, `EPOLL_PACKED`). */
const EPOLL_EVENT_BY_ARCH: Partial<Record<NodeJS.Architecture, EpollEventLayout>> = {
  x64: { size: 12, data: 4 },
  arm64: { size: 16, data: 8 },
};

/** Whether layouts are known for the machine this runs on. */
export const isSupportedMachine = process.platform === 'linux' && EPOLL_EVENT_BY_ARCH[process.arch] !== undefined;

export const EPOLL_EVENT: EpollEventLayout = EPOLL_EVENT_BY_ARCH[process.arch] ?? { size: 16, data: 8 };

/** `struct iovec`: base, then length. */
export const IOVEC = { size: 16, length: 8 } as const;

/** `struct mmsghdr`: a `struct msghdr` and the number of bytes that were moved. */
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
