import { calls, result } from '../src/sys/calls.ts';
import { close } from '../src/sys/descriptor.ts';
import { EPOLLIN, Epoll } from '../src/sys/epoll.ts';
import { Memory } from '../src/sys/memory.ts';
import {
  AF_INET,
  accept,
  bindTo,
  listen,
  SO_REUSEADDR,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  SOL_SOCKET,
  setOption,
  socket,
} from '../src/sys/socket.ts';
import { encodeSocketAddress } from '../src/sys/socket-address.ts';
import { EAGAIN, must } from '../src/sys/sys-error.ts';

/*
 * Takes all bytes without copying them out of the kernel, and closes where there are no more.
 *
 *   stream-sink.ts PORT
 */

/** On TCP, bytes are counted and dropped. */
const MSG_TRUNC = 0x20;
const NOWHERE = 0;
const MOST_BYTES = 4 << 20;

const peer = new Memory(SOCKET_ADDRESS_BYTES);
const epoll = new Epoll(64);
const listener = must('socket', socket(AF_INET, SOCK_STREAM));
// Connections of an earlier run are in TIME_WAIT here.
must('setsockopt', setOption(listener, { level: SOL_SOCKET, name: SO_REUSEADDR, value: 1 }));
must('bind', bindTo(listener, encodeSocketAddress('0.0.0.0', Number(process.argv[2]))));
must('listen', listen(listener, 64));
must('epoll_ctl', epoll.add(listener, EPOLLIN, 0));

function acceptOne(): void {
  const fd = accept(listener, peer);
  if (fd !== -EAGAIN) must('epoll_ctl', epoll.add(must('accept', fd), EPOLLIN, 0));
}

for (;;) {
  const count = epoll.wait(-1);
  for (let i = 0; i < count; i++) {
    const fd = epoll.descriptor(i);
    if (fd === listener) {
      acceptOne();
      continue;
    }
    const taken = result(calls.recv(fd, NOWHERE, MOST_BYTES, MSG_TRUNC));
    if (taken <= 0 && taken !== -EAGAIN) close(fd);
  }
}
