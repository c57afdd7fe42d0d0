import { createHash } from 'node:crypto';
import { createSocket, type Socket as DatagramSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { payload } from './payload.ts';

/**
 * - `name`: HTTP; every request is answered with the backend's name.
 * - `echo`: sends back what comes.
 * - `sink`: reads to the end, then answers with the byte count and SHA-256: also the half-close replier.
 * - `source`: reads one line with a number, sends that many bytes and closes.
 * - `early-end`: sends `bye` and half-closes at once, then reads to the end.
 * - `peer`: HTTP; every request is answered with the client's address as it is seen, `@` and the backend's name.
 */
export type TcpMode = 'peer' | 'name' | 'echo' | 'sink' | 'source' | 'early-end';

/**
 * - `udp-name`: answers `name length sha256`.
 * - `udp-echo`: sends back what comes.
 * - `udp-peer`: answers like `peer`.
 */
export type UdpMode = 'udp-peer' | 'udp-name' | 'udp-echo' | 'udp-silent';

export interface SeenConnection {
  readonly remote: string;
  received: number;
  outcome: 'open' | 'ended' | 'reset';
}

interface TcpListener {
  readonly server: Server;
  readonly sockets: Set<Socket>;
  readonly seen: SeenConnection[];
}

interface UdpListener {
  readonly socket: DatagramSocket;
  readonly seen: { remote: string; length: number }[];
}

const tcp = new Map<number, TcpListener>();
const udp = new Map<number, UdpListener>();

const tcpHandlers: Record<TcpMode, (socket: Socket, name: string) => void> = {
  name: answerName,
  peer: (socket, name) => answerName(socket, peerName(socket.remoteAddress ?? '', name)),
  echo: (socket) => socket.pipe(socket),
  sink: answerChecksum,
  source: sendPayload,
  'early-end': (socket) => socket.resume().end('bye'),
};

export async function listenTcp(args: { port: number; mode: TcpMode; name: string; host?: string }): Promise<number> {
  const listener: TcpListener = {
    server: createServer({ allowHalfOpen: true, noDelay: true }),
    sockets: new Set(),
    seen: [],
  };
  listener.server.on('connection', (socket) => {
    observe(listener, socket);
    tcpHandlers[args.mode](socket, args.name);
  });
  listener.server.listen({ port: args.port, host: args.host ?? '0.0.0.0', backlog: 4096 });
  await once(listener.server, 'listening');
  const { port } = listener.server.address() as { port: number };
  tcp.set(port, listener);
  return port;
}

export async function listenUdp(args: { port: number; mode: UdpMode; name: string; host?: string }): Promise<number> {
  const socket = createSocket(args.host?.includes(':') ? 'udp6' : 'udp4');
  const listener: UdpListener = { socket, seen: [] };
  socket.on('error', () => {});
  socket.on('message', (message, remote) => {
    listener.seen.push({ remote: `${remote.address}:${remote.port}`, length: message.length });
    const reply = (data: string | Buffer) => socket.send(data, remote.port, remote.address, () => {});
    if (args.mode === 'udp-silent') return;
    if (args.mode === 'udp-echo') reply(message);
    else if (args.mode === 'udp-peer') reply(peerName(remote.address, args.name));
    else reply(`${args.name} ${message.length} ${createHash('sha256').update(message).digest('hex')}`);
  });
  socket.bind(args.port, args.host ?? '0.0.0.0');
  await once(socket, 'listening');
  socket.setRecvBufferSize(4 << 20);
  const { port } = socket.address();
  udp.set(port, listener);
  return port;
}

/** As if the backend had died: connections are reset, further ones refused. */
export async function unlisten({ port }: { port: number }): Promise<void> {
  const stream = tcp.get(port);
  if (stream !== undefined) {
    tcp.delete(port);
    for (const socket of stream.sockets) socket.resetAndDestroy();
    await new Promise((resolve) => stream.server.close(resolve));
  }
  const datagram = udp.get(port);
  if (datagram !== undefined) {
    udp.delete(port);
    await new Promise<void>((resolve) => datagram.socket.close(resolve));
  }
}

/** Connections that a TCP listener has seen since it opened, or datagrams of a UDP one. */
export function seen({ port }: { port: number }): {
  connections: readonly SeenConnection[];
  datagrams: readonly { remote: string; length: number }[];
} {
  return { connections: tcp.get(port)?.seen ?? [], datagrams: udp.get(port)?.seen ?? [] };
}

function observe(listener: TcpListener, socket: Socket): void {
  const connection: SeenConnection = {
    remote: `${socket.remoteAddress}:${socket.remotePort}`,
    received: 0,
    outcome: 'open',
  };
  listener.seen.push(connection);
  listener.sockets.add(socket);
  socket.on('error', () => {
    connection.outcome = 'reset';
  });
  socket.on('end', () => {
    connection.outcome = 'ended';
  });
  socket.on('close', () => {
    connection.received = socket.bytesRead;
    listener.sockets.delete(socket);
  });
}

function answerName(socket: Socket, name: string): void {
  let request = '';
  socket.on('data', (chunk) => {
    request += chunk.toString('latin1');
    for (let end = request.indexOf('\r\n\r\n'); end >= 0; end = request.indexOf('\r\n\r\n')) {
      const close = /^connection: close/im.test(request.slice(0, end));
      request = request.slice(end + 4);
      const connection = close ? 'Connection: close\r\n' : '';
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${name.length}\r\n${connection}\r\n${name}`);
      if (close) socket.end();
    }
  });
  socket.on('end', () => socket.end());
}

function peerName(address: string, name: string): string {
  return `${address}@${name}`;
}

function answerChecksum(socket: Socket): void {
  const hash = createHash('sha256');
  socket.on('data', (chunk) => hash.update(chunk));
  socket.on('end', () => socket.end(`${socket.bytesRead} ${hash.digest('hex')}`));
}

function sendPayload(socket: Socket): void {
  socket.once('data', (line) => {
    Readable.from(copies(Number(line.toString().trim()))).pipe(socket);
  });
}

function* copies(bytes: number): Generator<Buffer> {
  for (const block of payload(bytes)) yield Buffer.from(block);
}
