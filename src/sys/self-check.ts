import { DatagramInbox } from './datagram-inbox.ts';
import { DatagramOutbox } from './datagram-outbox.ts';
import { close, pipe, splice } from './descriptor.ts';
import { EPOLLET, EPOLLIN, Epoll } from './epoll.ts';
import { isSupportedMachine, Memory } from './memory.ts';
import {
  AF_INET,
  bindTo,
  connect,
  getsockname,
  IP_PKTINFO,
  IPPROTO_IP,
  recv,
  SOCK_DGRAM,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  send,
  setOption,
  socket,
  socketpair,
} from './socket.ts';
import { decodeAddress, decodePort, encodeSocketAddress } from './socket-address.ts';
import { EINTR, must } from './sys-error.ts';

const TEXT = 'self-check';

/** Until a datagram over loopback is given up. */
const ARRIVAL_MS = 1_000;

/**
 * Proves on this very kernel and machine that system calls and structure layouts do what this program believes, before
 * any traffic depends on them. Throws an Error that says what does not hold. Takes about a millisecond, and a second where
 * the firewall swallows what is sent over loopback.
 */
export function selfCheck(): void {
  if (!isSupportedMachine) {
    throw new Error(`${process.platform} on ${process.arch} is not supported, only Linux on x64 and arm64`);
  }
  withDescriptors((fds) => {
    checkEpollAndSplice(fds);
    checkDatagrams(fds);
  });
}

/** An event must bring back all 64 bits of its data, and a second one must lie where the layout says. */
function checkEpollAndSplice(fds: Descriptors): void {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_STREAM, ends));
  const [one, other] = fds.take(ends);
  must('pipe2', pipe(ends));
  const [readEnd, writeEnd] = fds.take(ends);
  const epoll = new Epoll(2);
  fds.take([must('epoll_create1', epoll.fd)]);
  must('epoll_ctl', epoll.add(one, EPOLLIN, 0x7eadbeef));
  must('epoll_ctl', epoll.add(readEnd, EPOLLIN, -2));

  const memory = new Memory(TEXT.length);
  memory.bytes.write(TEXT);
  must('send', send(other, memory, 0, TEXT.length));
  expect('an epoll event', readEvents(epoll), [[EPOLLIN, one, 0x7eadbeef]]);
  expect('bytes spliced into a pipe', must('splice', splice(one, writeEnd, TEXT.length)), TEXT.length);
  expect('an epoll event', readEvents(epoll), [[EPOLLIN, readEnd, -2]]);
  must('splice', splice(readEnd, one, TEXT.length));
  must('send', send(other, memory, 0, TEXT.length));
  memory.bytes.fill(0);
  must('recv', recv(other, memory, 0, TEXT.length));
  expect('what was spliced', memory.bytes.toString(), TEXT);
}

function readEvents(epoll: Epoll): readonly (readonly number[])[] {
  const count = must('epoll_wait', epoll.wait(0));
  return Array.from({ length: count }, (_, i) => [epoll.events(i), epoll.descriptor(i), epoll.tag(i)]);
}

/** Two datagrams at once there and one back, with the addresses of both ends. */
function checkDatagrams(fds: Descriptors): void {
  const listener = fds.take([must('socket', socket(AF_INET, SOCK_DGRAM))])[0];
  must('setsockopt', setOption(listener, { level: IPPROTO_IP, name: IP_PKTINFO, value: 1 }));
  const client = fds.take([must('socket', socket(AF_INET, SOCK_DGRAM))])[0];
  must('bind', bindTo(listener, encodeSocketAddress('127.0.0.1', 0)));
  const address = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(listener, address));
  expect('the address of a bound socket', decodeAddress(address.bytes), '127.0.0.1');
  must('connect', connect(client, encodeSocketAddress('127.0.0.1', decodePort(address.bytes))));
  const arrivals = new Epoll(1);
  fds.take([must('epoll_create1', arrivals.fd)]);
  for (const fd of [listener, client]) must('epoll_ctl', arrivals.add(fd, EPOLLIN | EPOLLET, 0));

  const memory = new Memory(TEXT.length);
  memory.bytes.write(TEXT);
  must('send', send(client, memory, 0, TEXT.length));
  awaitArrival(arrivals);
  must('send', send(client, memory, 0, 4));
  awaitArrival(arrivals);
  const inbox = new DatagramInbox(3);
  expect('datagrams received', must('recvmmsg', inbox.receive(listener)), 2);
  expect('their lengths', [inbox.bytes(0), inbox.bytes(1)], [TEXT.length, 4]);
  expect('their content', textAt(inbox.data, inbox.offset(1), 4), TEXT.slice(0, 4));
  expect('the client', inbox.clientAddress(1), '127.0.0.1');

  const reply = new DatagramOutbox(2);
  const loop = inbox.replyPath(1);
  must('send', send(client, memory, 0, TEXT.length));
  awaitArrival(arrivals);
  expect('datagrams received', must('recvmmsg', reply.receive(listener, 2)), 1);
  expect('bytes of the reply', reply.direct(1, loop), TEXT.length);
  expect('datagrams lost', reply.flush(listener), 0);
  awaitArrival(arrivals);
  memory.bytes.fill(0);
  must('recv', recv(client, memory, 0, TEXT.length));
  expect('the reply', memory.bytes.toString(), TEXT);
}

/** A datagram need not be there when `send` returns: the kernel may leave it to another processor (RPS), or for later. */
function awaitArrival(arrivals: Epoll): void {
  let count: number;
  do count = arrivals.wait(ARRIVAL_MS);
  while (count === -EINTR);
  if (must('epoll_wait', count) === 0) {
    throw new Error('what is sent to 127.0.0.1 does not arrive; let it in (iptables -I INPUT -i lo -j ACCEPT)');
  }
}

function textAt(memory: Memory, offset: number, length: number): string {
  return memory.bytes.toString('latin1', offset, offset + length);
}

function expect(what: string, actual: unknown, expected: unknown): void {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) throw new Error(`${what} should be ${should} and is ${is}: the layouts of this machine differ`);
}

class Descriptors {
  readonly #fds: number[] = [];

  take<Fds extends readonly number[] | Int32Array>(fds: Fds): [number, number] {
    this.#fds.push(...fds);
    return [fds[0] ?? -1, fds[1] ?? -1];
  }

  closeAll(): void {
    for (const fd of this.#fds) close(fd);
  }
}

function withDescriptors(use: (fds: Descriptors) => void): void {
  const fds = new Descriptors();
  try {
    use(fds);
  } finally {
    fds.closeAll();
  }
}
