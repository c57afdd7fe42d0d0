import { callsAside } from './calls.ts';
import { close } from './descriptor.ts';
import { Memory } from './memory.ts';
import { recv, SO_SNDBUFFORCE, SOCK_RAW, SOL_SOCKET, send, setOption, socket } from './socket.ts';
import { EAGAIN, must, SysError } from './sys-error.ts';

/*
 * struct nlmsghdr   length 0–3 · type 4–5 · flags 6–7 · sequence 8–11 · port 12–15
 * struct nlattr     length 0–1 · type 2–3 · content
 *
 * In the machine's order, which is little-endian on all supported machines; each padded to 4 bytes. Lengths include the
 * header, not the padding.
 */

export const AF_NETLINK = 16;
const NETLINK_NETFILTER = 12;
export const NETLINK_SOCK_DIAG = 4;

const NLMSG_ERROR = 2;
const NLMSG_DONE = 3;
const NLM_F_REQUEST = 0x1;
export const NLM_F_DUMP = 0x300;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;

const MESSAGE_HEADER = 16;
const SEQUENCE = 8;
const ATTRIBUTE_HEADER = 4;
/** `struct nfgenmsg`: family 0 · version 1 · resource 2–3 (network order). */
const NFGENMSG_BYTES = 4;
/** Where the attributes of the only message of netfilter in a buffer begin. */
export const CONTENT_BEGIN = MESSAGE_HEADER + NFGENMSG_BYTES;

/** The kernel never writes more at once (`netlink_dump`). */
const BUFFER_BYTES = 32_768;

/**
 * The kernel writes the parts of a dump while its reader calls: the first part in `send`, each further one in `recv`. A
 * call takes as long as the search takes, also on a non-blocking socket, so it runs on another thread. A call that
 * failed is repeated here, for the errno.
 */
async function aside(there: typeof callsAside.recv, here: typeof recv, fd: number, memory: Memory): Promise<number> {
  const moved = await there(fd, memory.address, memory.length, 0);
  return moved === -1 ? here(fd, memory, 0, memory.length) : moved;
}

/** Called with a message and where its content begins and ends. The bytes are overwritten afterwards. */
type AnswerVisitor = (bytes: Buffer, begin: number, end: number) => void;

/**
 * Sends requests that the kernel handles before `send` returns, or one that asks for a short dump. Visits the answers.
 * Returns the errnos of the requests that the kernel refused.
 */
export function askNetlink(protocol: number, request: Buffer, visit: AnswerVisitor): readonly number[] {
  const fd = must('socket', socket(AF_NETLINK, SOCK_RAW, protocol));
  const refusals: number[] = [];
  try {
    const memory = Memory.of(request);
    must('send', send(fd, memory, 0, memory.length));
    readAnswers(fd, visit, refusals);
    return refusals;
  } finally {
    close(fd);
  }
}

/** All that the kernel has answered by now. */
function readAnswers(fd: number, visit: AnswerVisitor, refusals: number[]): void {
  const answer = new Memory(BUFFER_BYTES);
  for (;;) {
    const received = recv(fd, answer, 0, answer.length);
    if (received === -EAGAIN) return;
    visitAnswers(answer.bytes, must('recv', received), visit, (errno) => refusals.push(errno));
  }
}

/**
 * {@link askNetlink} of netfilter; visits what is behind `struct nfgenmsg`. Throws a {@link SysError} when the kernel
 * refuses a request, unless with the errno `tolerated`; returns how many were.
 */
export function askNetfilter(
  request: Buffer,
  { visit = () => {}, tolerated }: { readonly visit?: AnswerVisitor; readonly tolerated?: number } = {},
): number {
  const refusals = askNetlink(NETLINK_NETFILTER, request, behindHeader(visit));
  const refused = refusals.find((errno) => errno !== tolerated);
  if (refused !== undefined) throw new SysError('netfilter', refused);
  return refusals.length;
}

/**
 * Changes netfilter by one batch, all of it or nothing, on another thread: the kernel may wait for another program's
 * change. Rejects with a {@link SysError} when the kernel refuses it.
 */
export async function changeNetfilter(batch: Buffer): Promise<void> {
  const fd = must('socket', socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER));
  try {
    // In a user namespace this is refused, and the default is enough for a small batch.
    setOption(fd, { level: SOL_SOCKET, name: SO_SNDBUFFORCE, value: 2 * batch.length });
    must('send', await aside(callsAside.send, send, fd, Memory.of(batch)));
    const refusals: number[] = [];
    readAnswers(fd, () => {}, refusals);
    if (refusals[0] !== undefined) throw new SysError('netfilter', refusals[0]);
  } finally {
    close(fd);
  }
}

function behindHeader(visit: AnswerVisitor): AnswerVisitor {
  return (bytes, begin, end) => visit(bytes, begin + NFGENMSG_BYTES, end);
}

/** More than an answer about one object takes. */
const ANSWER_BYTES = 4096;
/** In a refusal: behind the errno, the header of the request. */
const REFUSED_TYPE = MESSAGE_HEADER + 4 + 4;

/**
 * Asks the kernel about one object at a time, on the data path: without garbage, and with two system calls. The kernel
 * handles a request before `send` returns.
 */
export class NetlinkSocket {
  readonly answer = new Memory(ANSWER_BYTES);
  readonly #own: (fd: number) => void;
  readonly #protocol: number;
  #fd = -1;
  /** Of the last request that wants to know. An answer with another one is of an earlier request, and too late. */
  #sequence = 0;

  /** `own` gets the descriptor when it is opened. */
  constructor(own: (fd: number) => void, protocol = NETLINK_NETFILTER) {
    this.#own = own;
    this.#protocol = protocol;
  }

  /** Before the first request. 0, or a negative errno. */
  open(): number {
    if (this.#fd >= 0) return 0;
    const fd = socket(AF_NETLINK, SOCK_RAW, this.#protocol);
    if (fd < 0) return fd;
    this.#fd = fd;
    this.#own(fd);
    return 0;
  }

  /**
   * Sends one or two requests that want no answer: silence is success. 0, or the negative errno of the request of this
   * type, one of them. A refusal of the other does not count.
   */
  change(type: number, request: Memory, count: 1 | 2 = 1): number {
    const sent = this.#ask(request);
    if (sent < 0) return sent;
    const { bytes } = this.answer;
    let status = 0;
    for (let refusals = 0; refusals < count; refusals++) {
      const received = this.#receive();
      if (received === -EAGAIN) return status;
      if (received < 0) return received;
      if (bytes.readUInt16LE(REFUSED_TYPE) === type) status = bytes.readInt32LE(MESSAGE_HEADER);
    }
    return status;
  }

  /** Sends the first `length` bytes: requests that want no answer, without a number. Nobody learns of refusals. */
  changeAll(requests: Memory, length: number): void {
    if (send(this.#fd, requests, 0, length) < 0) return;
    while (recv(this.#fd, this.answer, 0, ANSWER_BYTES) >= 0);
  }

  /** Puts one object into {@link answer}. The length of the message, or a negative errno. */
  get(request: Memory): number {
    const sent = this.#ask(request);
    if (sent < 0) return sent;
    const received = this.#receive();
    if (received < 0) return received;
    const { bytes } = this.answer;
    return bytes.readUInt16LE(4) === NLMSG_ERROR ? bytes.readInt32LE(MESSAGE_HEADER) : received;
  }

  /** Sends all messages in `request` with one number, which is never 0. */
  #ask(request: Memory): number {
    const { bytes, length } = request;
    this.#sequence = (this.#sequence + 1) & 0x7fff_ffff || 1;
    for (let at = 0; at < length; at += bytes.readUInt32LE(at)) bytes.writeUInt32LE(this.#sequence, at + SEQUENCE);
    return send(this.#fd, request, 0, length);
  }

  /** The length of the next answer to the last request, or a negative errno. */
  #receive(): number {
    for (;;) {
      const received = recv(this.#fd, this.answer, 0, ANSWER_BYTES);
      if (received < 0 || this.answer.bytes.readUInt32LE(SEQUENCE) === this.#sequence) return received;
    }
  }
}

/** The same of a dump, part by part. Rejects with a {@link SysError} when the kernel refuses it. */
export async function dumpNetfilter(request: Buffer, visit: AnswerVisitor): Promise<void> {
  const fd = must('socket', socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER));
  try {
    must('send', await aside(callsAside.send, send, fd, Memory.of(request)));
    const answer = new Memory(BUFFER_BYTES);
    for (let isDone = false; !isDone; ) {
      isDone = visitAnswers(
        answer.bytes,
        must('recv', await aside(callsAside.recv, recv, fd, answer)),
        behindHeader(visit),
        (errno) => {
          throw new SysError('netfilter', errno);
        },
      );
    }
  } finally {
    close(fd);
  }
}

/** Returns whether the last message was among them. */
function visitAnswers(
  bytes: Buffer,
  received: number,
  visit: AnswerVisitor,
  onRefusal: (errno: number) => void,
): boolean {
  let isDone = false;
  visitMessages(bytes, received, (type, begin, end) => {
    if (type !== NLMSG_DONE && type !== NLMSG_ERROR) return visit(bytes, begin, end);
    isDone = true;
    // Both begin with a negative errno, or 0.
    const errno = -bytes.readInt32LE(begin);
    if (errno !== 0) onRefusal(errno);
  });
  return isDone;
}

/** The header that all messages of netfilter begin with. `resource`: the subsystem, at the bounds of a batch. */
export function nfgenmsg(family: number, resource = 0): Buffer {
  return Buffer.of(family, 0, resource >> 8, resource & 0xff);
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

/** A number of 32 bits, in network order. */
export function encodeWord(type: number, value: number): Buffer {
  const content = Buffer.alloc(4);
  content.writeUInt32BE(value);
  return encodeAttribute(type, content);
}

export function encodeNested(type: number, attributes: readonly Buffer[]): Buffer {
  return encodeAttribute(NLA_F_NESTED | type, Buffer.concat(attributes));
}

/** Where the content of one attribute of a message begins: the attribute of `path`'s last type within those before. */
export function placeOf(message: Buffer, path: readonly number[]): number {
  return rangeOf(message, CONTENT_BEGIN, path)[0];
}

/** The content of one attribute within attributes. */
export function contentOf(attributes: Buffer, path: readonly number[]): Buffer {
  return attributes.subarray(...rangeOf(attributes, 0, path));
}

function rangeOf(message: Buffer, from: number, path: readonly number[]): readonly [begin: number, end: number] {
  let [begin, end] = [from, message.length];
  for (const wanted of path) {
    let found: readonly [number, number] | undefined;
    visitAttributes(message, begin, end, (type, from, to) => {
      if (type === wanted) found = [from, to];
    });
    if (found === undefined) throw new RangeError(`a netlink message has no attribute ${path}`);
    [begin, end] = found;
  }
  return [begin, end];
}

/** Called with the type of a message or an attribute, and where its content begins and ends. */
type NetlinkVisitor = (type: number, begin: number, end: number) => void;

/** Throws a RangeError when the bytes up to `length` are not a sequence of messages. */
export function visitMessages(bytes: Buffer, length: number, visit: NetlinkVisitor): void {
  for (let at = 0; at < length; ) {
    const size = bytes.readUInt32LE(at);
    if (size < MESSAGE_HEADER || at + size > length) throw new RangeError(`a netlink message of ${size} bytes`);
    visit(bytes.readUInt16LE(at + 4), at + MESSAGE_HEADER, at + size);
    at += aligned(size);
  }
}

/** Throws a RangeError when the bytes between are not a sequence of attributes. */
export function visitAttributes(bytes: Buffer, begin: number, end: number, visit: NetlinkVisitor): void {
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
