import { createHash } from 'node:crypto';

const BLOCK = 64 * 1024;

/**
 * `bytes` of data in which no two blocks are alike, so that a lost, doubled or swapped one changes the checksum.
 * Yields the same buffer again and again: copy what must be kept.
 */
export function* payload(bytes: number): Generator<Buffer> {
  const block = Buffer.alloc(BLOCK, 'kube-userspace-proxy ');
  for (let sent = 0; sent < bytes; sent += BLOCK) {
    block.writeDoubleBE(sent, 0);
    yield block.subarray(0, Math.min(BLOCK, bytes - sent));
  }
}

export function payloadChecksum(bytes: number): string {
  const hash = createHash('sha256');
  for (const block of payload(bytes)) hash.update(block);
  return hash.digest('hex');
}
