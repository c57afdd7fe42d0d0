import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { result } from '../src/sys/calls.ts';
import { EPOLLIN, EPOLLOUT, Epoll } from '../src/sys/epoll.ts';
import { Memory } from '../src/sys/memory.ts';
import { AF_INET, connect, recv, SOCK_STREAM, shutdownWrite, socket } from '../src/sys/socket.ts';
import { encodeSocketAddress } from '../src/sys/socket-address.ts';
import { EAGAIN, EINPROGRESS, must } from '../src/sys/sys-error.ts';
import { sendfile } from './calls.ts';

/*
 * Sends on so many connections as fast as they take it, until stream-sink.ts has everything. Writes one line of JSON.
 *
 *   stream-load.ts HOST PORT STREAMS SECONDS
 *
 * Neither end copies or looks at a byte, so that nearly all of the processors' time is the proxy's and the kernel's.
 */

const PIECE_BYTES = 1 << 20;

const [host, port, streams, seconds] = [process.argv[2]!, ...process.argv.slice(3).map(Number)] as [
  string,
  number,
  number,
  number,
];

const file = openSparseFile(PIECE_BYTES);
const offset = new Memory(8);
const byte = new Memory(1);
const epoll = new Epoll(streams);
let bytes = 0;
let ended = 0;
let isOver = false;

function openSparseFile(size: number): number {
  const folder = mkdtempSync(join(tmpdir(), 'kup-stream-'));
  const fd = openSync(join(folder, 'zeros'), 'w+');
  rmSync(folder, { recursive: true });
  ftruncateSync(fd, size);
  return fd;
}

function move(fd: number): void {
  if (isOver) {
    // The other end closes when it has everything.
    if (recv(fd, byte, 0, 1) !== 0) return;
    epoll.remove(fd);
    ended++;
    return;
  }
  offset.bytes.fill(0);
  const sent = result(sendfile(fd, file, offset.address, PIECE_BYTES));
  if (sent !== -EAGAIN) bytes += must('sendfile', sent);
}

const begun = performance.now();
const fds = Array.from({ length: streams }, () => {
  const fd = must('socket', socket(AF_INET, SOCK_STREAM));
  const status = connect(fd, encodeSocketAddress(host, port));
  if (status !== -EINPROGRESS) must('connect', status);
  must('epoll_ctl', epoll.add(fd, EPOLLOUT, 0));
  return fd;
});
while (ended < streams) {
  const count = epoll.wait(50);
  for (let i = 0; i < count; i++) move(epoll.descriptor(i));
  if (isOver || performance.now() - begun < seconds * 1000) continue;
  isOver = true;
  for (const fd of fds) {
    must('shutdown', shutdownWrite(fd));
    must('epoll_ctl', epoll.modify(fd, EPOLLIN, 0));
  }
}
closeSync(file);
console.log(JSON.stringify({ bytes, seconds: (performance.now() - begun) / 1000 }));
