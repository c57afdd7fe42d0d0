import type { IpFamily } from '../../model/address.ts';
import { close } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import {
  NETLINK_BUFFER_BYTES,
  NLMSG_DONE,
  NLMSG_ERROR,
  netfilterSocket,
  receiveDump,
  sendDumpRequest,
  visitMessages,
} from '../../sys/netlink.ts';
import { recv, send } from '../../sys/socket.ts';
import { EAGAIN, EINVAL, ENOENT, EPERM, must, SysError } from '../../sys/sys-error.ts';
import { deleteRequest, dumpRequest, type KernelEntry, readEntry } from './ctnetlink.ts';

/** The refusals of so many deletions fit into a socket's receive buffer. */
const BATCH = 64;

/** One walk through the UDP entries of a family, to one original destination port or to any. To be closed. */
export class CtnetlinkWalk {
  readonly #fd = must('socket', netfilterSocket());
  readonly #buffer = new Memory(NETLINK_BUFFER_BYTES);
  readonly #request: Memory;
  #isBegun = false;

  constructor(family: IpFamily, port: number | undefined) {
    this.#request = memoryOf(dumpRequest(family, port));
  }

  /**
   * Visits some entries, a few hundred at most; resolves with whether those were the last. An entry is good until the
   * next step. Rejects with an Error that says what to do when connection tracking cannot be read.
   */
  async step(visit: (entry: KernelEntry) => void): Promise<boolean> {
    const { bytes } = this.#buffer;
    if (!this.#isBegun) must('send', await sendDumpRequest(this.#fd, this.#request));
    this.#isBegun = true;
    const received = must('recv', await receiveDump(this.#fd, this.#buffer));
    let isDone = false;
    visitMessages(bytes, received, (type, begin, end) => {
      if (type === NLMSG_DONE || type === NLMSG_ERROR) {
        isDone = true;
        // Both begin with a negative errno, or 0.
        const errno = -bytes.readInt32LE(begin);
        if (errno !== 0) throw cannotRead(errno);
      } else {
        const entry = readEntry(bytes, begin, end);
        if (entry !== undefined) visit(entry);
      }
    });
    return isDone;
  }

  close(): void {
    close(this.#fd);
  }
}

/** Deletes entries of one family. To be closed. */
export class CtnetlinkDeletion {
  readonly #family: IpFamily;
  readonly #fd = must('socket', netfilterSocket());
  readonly #answers = new Memory(NETLINK_BUFFER_BYTES);

  constructor(family: IpFamily) {
    this.#family = family;
  }

  /** How many went; those that are gone already do not count. */
  delete(entries: readonly KernelEntry[]): number {
    let deleted = 0;
    for (let i = 0; i < entries.length; i += BATCH) {
      const batch = entries.slice(i, i + BATCH);
      const requests = memoryOf(Buffer.concat(batch.map((entry) => deleteRequest(this.#family, entry))));
      must('send', send(this.#fd, requests, 0, requests.length));
      // The kernel has done it when `send` returns.
      deleted += batch.length - this.#refusals();
    }
    return deleted;
  }

  close(): void {
    close(this.#fd);
  }

  #refusals(): number {
    const { bytes, length } = this.#answers;
    let refusals = 0;
    for (;;) {
      const received = recv(this.#fd, this.#answers, 0, length);
      if (received === -EAGAIN) return refusals;
      visitMessages(bytes, must('recv', received), (_type, begin) => {
        refusals++;
        const errno = -bytes.readInt32LE(begin);
        if (errno !== ENOENT) throw new SysError('cannot delete a connection tracking entry', errno);
      });
    }
  }
}

function memoryOf(bytes: Buffer): Memory {
  const memory = new Memory(bytes.length);
  memory.bytes.set(bytes);
  return memory;
}

function cannotRead(errno: number): Error {
  const { message } = new SysError('cannot read the connection tracking table', errno);
  if (errno === EPERM) return new Error(`${message}; give this program CAP_NET_ADMIN`);
  if (errno === EINVAL) return new Error(`${message}; load the kernel module nf_conntrack_netlink`);
  return new Error(message);
}
