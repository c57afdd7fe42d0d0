import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { endProcess } from '../../../../src/kernel/process.ts';
import { PayloadCheck } from './churn-payload.ts';

/*
 * Backends that come and go. Argument: their address. `{ start: i }` brings number i up at a new port, TCP and UDP,
 * and answers with both; `{ kill: i }` refuses and resets from then on; anything else is answered with what went wrong.
 */
const [, , host = ''] = process.argv;

interface Backend {
  readonly server: Server;
  readonly datagrams: DatagramSocket;
  readonly sockets: Set<Socket>;
}

const backends = new Map<number, Backend>();
let strangers = 0;

async function start(i: number): Promise<void> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    serve(socket);
  });
  server.listen(0, host);
  const datagrams = createSocket('udp4');
  datagrams.on('message', (datagram, { port }) => datagrams.send(datagram, port, '127.0.0.1', () => {}));
  datagrams.bind(0, host);
  await Promise.all([once(server, 'listening'), once(datagrams, 'listening')]);
  backends.set(i, { server, datagrams, sockets });
  process.send?.({ started: i, tcp: (server.address() as AddressInfo).port, udp: datagrams.address().port });
}

function serve(socket: Socket): void {
  const check = new PayloadCheck();
  socket.on('data', (chunk: Buffer) => {
    const before = check.isSound;
    check.add(chunk);
    if (before && !check.isSound) strangers++;
    if (check.mode === 'r' && check.receivedBytes > 100) {
      socket.resetAndDestroy();
      return;
    }
    if (socket.writableEnded) return;
    if (!socket.write(chunk)) socket.pause();
    if (check.mode === 'c') socket.end();
  });
  socket.on('drain', () => socket.resume());
  socket.on('end', () => socket.end());
}

process.on('message', (message: { start?: number; kill?: number }) => {
  if (message.start !== undefined) start(message.start);
  else if (message.kill !== undefined) {
    const backend = backends.get(message.kill);
    backends.delete(message.kill);
    backend?.server.close();
    backend?.datagrams.close();
    for (const socket of backend?.sockets ?? []) socket.resetAndDestroy();
  } else process.send?.({ strangers });
});
process.on('disconnect', () => void endProcess(0));
