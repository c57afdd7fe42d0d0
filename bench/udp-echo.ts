import { calls, result } from '../src/sys/calls.ts';
import { AF_INET, bindTo, SO_RCVBUF, SOCK_DGRAM, SOL_SOCKET, setOption, socket } from '../src/sys/socket.ts';
import { encodeSocketAddress } from '../src/sys/socket-address.ts';
import { must } from '../src/sys/sys-error.ts';
import { DatagramBatch } from './datagram-batch.ts';
import { RunBatch } from './run-batch.ts';

/*
 * Sends every datagram back.
 *
 *   udp-echo.ts PORT [BYTES]
 *
 * With BYTES, which all datagrams have, it receives and sends runs of them.
 */

const BATCH = 64;
const F_SETFL = 4;
const BLOCKING = 0;

const [port, datagramBytes] = process.argv.slice(2).map(Number);
const batch = datagramBytes === undefined ? new DatagramBatch(BATCH, true) : new RunBatch(datagramBytes, true);
const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
batch.prepare(fd);
must('setsockopt', setOption(fd, { level: SOL_SOCKET, name: SO_RCVBUF, value: 4 << 20 }));
must('bind', bindTo(fd, encodeSocketAddress('0.0.0.0', port!)));
must('fcntl', result(calls.fcntl(fd, F_SETFL, BLOCKING)));
for (;;) {
  const count = batch.receive(fd);
  if (count > 0) batch.send(fd, count);
}
