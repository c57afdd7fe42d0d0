import { close } from './descriptor.ts';
import { bindAsync } from './libc.ts';
import { Memory } from './memory.ts';
import { recv, SOCK_RAW, send, socket } from './socket.ts';
import { EAGAIN, must, SysError } from './sys-error.ts';

const sendAside = bindAsync('int64_t send(int, int64_t, size_t, int)');
const recvAside = bindAsync('int64_t recv(int, int64_t, size_t, int)');

/*
 * struct nlmsghdr   length 0–3 · type 4–5 · flags 6–7 · sequence 8–11 · port 12–15
 * struct nlattr     length 0–1 · type 2–3 · content
 *
 * In the machine's order, which is little-endian on all that this folder runs on; each padded to 4 bytes. Lengths count
 * the header and not the padding.
 */

export const AF_NETLINK = 16;
const NETLINK_ROUTE = 0;
const NETLINK_NETFILTER = 12;

export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;
const NLM_F_REQUEST = 0x1;
export const NLM_F_DUMP = 0x300;
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;

const MESSAGE_HEADER = 16;
const ATTRIBUTE_HEADER = 4;

/** The kernel never fills more at once (`netlink_dump`). */
export const NETLINK_BUFFER_BYTES = 32_768;

/** A socket to the kernel's netfilter, non-blocking; or a negative errno. `send` and `recv` of socket.ts are for it. */
export function netfilterSocket(): number {
  return socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
}

/** The same to its addresses and routes. */
export function routeSocket(): number {
  return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}

/*
 * The kernel writes the parts of a dump while its reader calls: the first in `send`, each further one in `recv`. That
 * takes as long as it takes to find something, also on a non-blocking socket, and so happens aside from the event loop.
 * A call that failed is made once more, for the errno.
 */

/** Bytes sent, or a negative errno. */
export async function sendDumpRequest(fd: number, request: Memory): Promise<number> {
  const sent = await sendAside(fd, request.address, request.length, 0);
  return sent === -1 ? send(fd, request, 0, request.length) : sent;
}

/** Bytes received into `memory`, or a negative errno. */
export async function receiveDump(fd: number, memory: Memory): Promise<number> {
  const received = await recvAside(fd, memory.address, memory.length, 0);
  return received === -1 ? recv(fd, memory, 0, memory.length) : received;
}

/** Called with the bytes that {@link MessageVisitor} speaks of; they are overwritten afterwards. */
export type AnswerVisitor = (bytes: Buffer, ...message: Parameters<MessageVisitor>) => void;

/**
 * Sends messages that the kernel answers before `send` returns, which it does with all but dumps, and visits the
 * answers. Throws a {@link SysError} of what the kernel refused.
 */
export function askNetfilter(request: Buffer, visit?: AnswerVisitor): void {
  const fd = must('socket', netfilterSocket());
  try {
    const memory = memoryOf(request);
    must('send', send(fd, memory, 0, memory.length));
    const answer = new Memory(NETLINK_BUFFER_BYTES);
    for (;;) {
      const received = recv(fd, answer, 0, answer.length);
      if (received === -EAGAIN) return;
      visitAnswers(answer.bytes, must('recv', received), visit);
    }
  } finally {
    close(fd);
  }
}

/** Visits all that a dump tells. Rejects with a {@link SysError} of what the kernel refused. */
export async function dumpNetfilter(request: Buffer, visit: AnswerVisitor): Promise<void> {
  const fd = must('socket', netfilterSocket());
  try {
    must('send', await sendDumpRequest(fd, memoryOf(request)));
    const answer = new Memory(NETLINK_BUFFER_BYTES);
    for (let isDone = false; !isDone; ) {
      isDone = visitAnswers(answer.bytes, must('recv', await receiveDump(fd, answer)), visit);
    }
  } finally {
    close(fd);
  }
}

/** Says whether the last one was among them. */
function visitAnswers(bytes: Buffer, received: number, visit?: AnswerVisitor): boolean {
  let isDone = false;
  visitMessages(bytes, received, (type, begin, end) => {
    if (type !== NLMSG_DONE && type !== NLMSG_ERROR) return visit?.(bytes, type, begin, end);
    isDone = true;
    // Both begin with a negative errno, or 0.
    const errno = -bytes.readInt32LE(begin);
    if (errno !== 0) throw new SysError('netfilter', errno);
  });
  return isDone;
}

function memoryOf(bytes: Buffer): Memory {
  const memory = new Memory(bytes.length);
  memory.bytes.set(bytes);
  return memory;
}

export function encodeMessage(type: number, flags: number, content: readonly Uint8Array[]): Buffer {
  const header = Buffer.alloc(MESSAGE_HEADER);
  const message = Buffer.concat([header, ...content]);
  message.writeUInt32LE(message.length, 0);
  message.writeUInt16LE(type, 4);
  message.writeUInt16LE(NLM_F_REQUEST | flags, 6);
  return message;
}

export function encodeAttribute(type: number, content: Uint8Array): Buffer {
  const attribute = Buffer.alloc(aligned(ATTRIBUTE_HEADER + content.length));
  attribute.writeUInt16LE(ATTRIBUTE_HEADER + content.length, 0);
  attribute.writeUInt16LE(type, 2);
  attribute.set(content, ATTRIBUTE_HEADER);
  return attribute;
}

export function encodeNested(type: number, attributes: readonly Buffer[]): Buffer {
  return encodeAttribute(NLA_F_NESTED | type, Buffer.concat(attributes));
}

/** Called with a message's type and where its content begins and ends. */
export type MessageVisitor = (type: number, begin: number, end: number) => void;

/** Throws a RangeError when the bytes up to `length` are no sequence of messages. */
export function visitMessages(bytes: Buffer, length: number, visit: MessageVisitor): void {
  for (let at = 0; at < length; ) {
    const size = bytes.readUInt32LE(at);
    if (size < MESSAGE_HEADER || at + size > length) throw new RangeError(`a netlink message of ${size} bytes`);
    visit(bytes.readUInt16LE(at + 4), at + MESSAGE_HEADER, at + size);
    at += aligned(size);
  }
}

/** Called with an attribute's type and where its content begins and ends. */
export type AttributeVisitor = (type: number, begin: number, end: number) => void;

/** Throws a RangeError when the bytes between are no sequence of attributes. */
export function visitAttributes(bytes: Buffer, begin: number, end: number, visit: AttributeVisitor): void {
  for (let at = begin; at < end; ) {
    const size = bytes.readUInt16LE(at);
    if (size < ATTRIBUTE_HEADER || at + size > end) throw new RangeError(`a netlink attribute of ${size} bytes`);
    visit(bytes.readUInt16LE(at + 2) & NLA_TYPE_MASK, at + ATTRIBUTE_HEADER, at + size);
    at += aligned(size);
  }
}

function aligned(length: number): number {
  return (length + 3) & ~3;
}
