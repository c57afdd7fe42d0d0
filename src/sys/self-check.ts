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

/** How long a datagram over loopback may take. */
const ARRIVAL_MS = 1_000;

/**
 * Proves on this kernel and machine that system calls and structure layouts behave as this program assumes, before
 * traffic depends on them. Throws an Error that says what is wrong. Takes about a millisecond, or a second where a
 * firewall drops packets over loopback.
 */
export function selfCheck(): void {
  if (!isSupportedMachine) {
    throw new Error(`${process.platform} on ${process.arch} is not supported, only Linux on x64 and arm64`);
  }
  const fds: number[] = [];
  const own = (call: string, fd: number): number => {
    fds.push(must(call, fd));
    return fd;
  };
  try {
    checkEpollAndSplice(own);
    checkDatagrams(own);
  } finally {
    for (const fd of fds) close(fd);
  }
}

/** Returns the descriptor, which is closed after the check. Throws for a negative errno. */
type Own = (call: string, fd: number) => number;

/** An event must return all 64 bits of its data, and a second event must lie where the layout says. */
function checkEpollAndSplice(own: Own): void {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_STREAM, ends));
  const [one = -1, other = -1] = Array.from(ends, (fd) => own('socketpair', fd));
  must('pipe2', pipe(ends));
  const [readEnd = -1, writeEnd = -1] = Array.from(ends, (fd) => own('pipe2', fd));
  const epoll = new Epoll(2);
  own('epoll_create1', epoll.fd);
  must('epoll_ctl', epoll.add(one, EPOLLIN, 0x7eadbeef));
  must('epoll_ctl', epoll.add(readEnd, EPOLLIN, -2));
  const events = () =>
    Array.from({ length: must('epoll_wait', epoll.wait(0)) }, (_, i) => [
      epoll.events(i),
      epoll.descriptor(i),
      epoll.tag(i),
    ]);

  const text = Memory.of(Buffer.from(TEXT));
  must('send', send(other, text, 0, TEXT.length));
  expect('an epoll event', events(), [[EPOLLIN, one, 0x7eadbeef]]);
  expect('bytes spliced into a pipe', must('splice', splice(one, writeEnd, TEXT.length)), TEXT.length);
  expect('an epoll event', events(), [[EPOLLIN, readEnd, -2]]);
  must('splice', splice(readEnd, one, TEXT.length));
  expect('what was spliced', receiveText(other), TEXT);
}

/** Two datagrams at once to a listener and one back, with the addresses of both ends. */
function checkDatagrams(own: Own): void {
  const listener = own('socket', socket(AF_INET, SOCK_DGRAM));
  must('setsockopt', setOption(listener, { level: IPPROTO_IP, name: IP_PKTINFO, value: 1 }));
  const client = own('socket', socket(AF_INET, SOCK_DGRAM));
  must('bind', bindTo(listener, encodeSocketAddress('127.0.0.1', 0)));
  const address = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(listener, address));
  expect('the address of a bound socket', decodeAddress(address.bytes), '127.0.0.1');
  must('connect', connect(client, encodeSocketAddress('127.0.0.1', decodePort(address.bytes))));
  const arrivals = new Epoll(1);
  own('epoll_create1', arrivals.fd);
  for (const fd of [listener, client]) must('epoll_ctl', arrivals.add(fd, EPOLLIN | EPOLLET, 0));
  const text = Memory.of(Buffer.from(TEXT));
  const sendText = (length: number) => {
    must('send', send(client, text, 0, length));
    awaitArrival(arrivals);
  };

  sendText(TEXT.length);
  sendText(4);
  const inbox = new DatagramInbox(3);
  expect('datagrams received', must('recvmmsg', inbox.receive(listener)), 2);
  expect('their lengths', [inbox.bytes(0), inbox.bytes(1)], [TEXT.length, 4]);
  const content = inbox.data.bytes.toString('latin1', inbox.offset(1), inbox.offset(1) + 4);
  expect('their content', content, TEXT.slice(0, 4));
  expect('the client', inbox.clientAddress(1), '127.0.0.1');

  const reply = new DatagramOutbox(2);
  const path = inbox.replyPath(1);
  sendText(TEXT.length);
  expect('datagrams received', must('recvmmsg', reply.receive(listener, 2)), 1);
  expect('bytes of the reply', reply.direct(1, path), TEXT.length);
  expect('datagrams lost', reply.flush(listener), 0);
  awaitArrival(arrivals);
  expect('the reply', receiveText(client), TEXT);
}

/**
 * A datagram may arrive after `send` returns: the kernel may pass it to another processor (RPS), or handle it later.
 */
function awaitArrival(arrivals: Epoll): void {
  let count: number;
  do count = arrivals.wait(ARRIVAL_MS);
  while (count === -EINTR);
  if (must('epoll_wait', count) === 0) {
    throw new Error('what is sent to 127.0.0.1 does not arrive; let it in (iptables -I INPUT -i lo -j ACCEPT)');
  }
}

function receiveText(fd: number): string {
  const memory = new Memory(TEXT.length);
  must('recv', recv(fd, memory, 0, TEXT.length));
  return memory.bytes.toString();
}

function expect(what: string, actual: unknown, expected: unknown): void {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) throw new Error(`${what} should be ${should} and is ${is}: the layouts of this machine differ`);
}
