import { bind, result } from '../src/sys/libc.ts';
import { AF_INET, bindTo, SO_RCVBUF, SOCK_DGRAM, SOL_SOCKET, setOption, socket } from '../src/sys/socket.ts';
import { encodeSocketAddress } from '../src/sys/socket-address.ts';
import { must } from '../src/sys/sys-error.ts';
import { DatagramBatch } from './datagram-batch.ts';

/*
 * Sends every datagram back.
 *
 *   udp-echo.ts PORT
 */

const BATCH = 64;
const F_SETFL = 4;
const BLOCKING = 0;

const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
must('setsockopt', setOption(fd, { level: SOL_SOCKET, name: SO_RCVBUF, value: 4 << 20 }));
must('bind', bindTo(fd, encodeSocketAddress('0.0.0.0', Number(process.argv[2]))));
must('fcntl', result(bind('int fcntl(int, int, int)')(fd, F_SETFL, BLOCKING)));
const batch = new DatagramBatch(BATCH, true);
for (;;) {
  const count = batch.receive(fd);
  if (count > 0) batch.send(fd, count);
}
