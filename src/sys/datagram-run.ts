import { CMSGHDR } from './abi.ts';
import { EINVAL, EIO, EMSGSIZE } from './sys-error.ts';

/*
 * A run: datagrams of one size, of which the last may be shorter, on their way to one place. With UDP_SEGMENT (Linux
 * 4.18) the kernel takes them through its network stack as one packet and cuts it at the end, for a third of the cost.
 */

const SOL_UDP = 17;
const UDP_SEGMENT = 103;

/** Of the control message that asks for it: a header, and the size in 16 bits, padded. */
export const SEGMENT_CONTROL_BYTES = 24;

/** The kernel's UDP_MAX_SEGMENTS in older versions. */
const MAX_COUNT = 64;
const MAX_BYTES = 65_000;

/** What fits into a packet of a common link. A segment must need no fragments. */
const MAX_SEGMENT_BYTES = 1472;

/** Old kernels, links with small packets, IPsec: one by one it works. */
const CANNOT_SEGMENT: ReadonlySet<number> = new Set([EINVAL, EIO, EMSGSIZE]);

export function cannotSegment(result: number): boolean {
  return CANNOT_SEGMENT.has(-result);
}

/** How many of the datagrams `first` to `end` - 1 make a run, at least 1. */
export function runLength(first: number, end: number, sizeOf: (i: number) => number): number {
  const size = sizeOf(first);
  if (size === 0 || size > MAX_SEGMENT_BYTES) return 1;
  let count = 1;
  for (let bytes = size; first + count < end && count < MAX_COUNT; count++) {
    const next = sizeOf(first + count);
    bytes += next;
    if (next === 0 || next > size || bytes > MAX_BYTES) break;
    if (next < size) return count + 1;
  }
  return count;
}

export function writeSegmentControl(words: Int32Array, at: number, size: number): void {
  words[at + CMSGHDR.length / 4] = CMSGHDR.size + 2;
  words[at + CMSGHDR.length / 4 + 1] = 0;
  words[at + CMSGHDR.level / 4] = SOL_UDP;
  words[at + CMSGHDR.type / 4] = UDP_SEGMENT;
  words[at + CMSGHDR.size / 4] = size;
  words[at + CMSGHDR.size / 4 + 1] = 0;
}
