import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { errnoOf } from '../../src/engine/errors.ts';
import type { Address } from '../../src/model/address.ts';
import { type NamedEndpoint, namedEndpoint } from '../../src/model/endpoint.ts';
import { close } from '../../src/sys/descriptor.ts';
import { Memory } from '../../src/sys/memory.ts';
import { AF_INET, bindTo, getsockname, SOCK_STREAM, SOCKET_ADDRESS_BYTES, socket } from '../../src/sys/socket.ts';
import { decodePort, encodeSocketAddress } from '../../src/sys/socket-address.ts';
import { must } from '../../src/sys/sys-error.ts';
import { PATIENCE_MS } from '../netns/wait.ts';

/** One side of a TCP connection, with its history. It does not end its own direction by itself. */
export class TcpPeer {
  readonly socket: Socket;
  receivedBytes = 0;
  /** The other side has ended its direction cleanly. */
  hasEnded = false;
  /** The errno of a connection that broke. */
  error: string | undefined;
  readonly #chunks: Buffer[] = [];

  constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      this.receivedBytes += chunk.length;
      this.#chunks.push(chunk);
    });
    socket.on('end', () => {
      this.hasEnded = true;
    });
    socket.on('error', (err: NodeJS.ErrnoException) => {
      this.error = err.code;
    });
  }

  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  get isOver(): boolean {
    return this.hasEnded || this.socket.destroyed;
  }

  send(data: string | Buffer): void {
    this.socket.write(data);
  }

  end(data: string | Buffer = ''): void {
    this.socket.end(data);
  }

  reset(): void {
    this.socket.resetAndDestroy();
  }

  async hasReceived(bytes: number): Promise<void> {
    while (this.receivedBytes < bytes) await once(this.socket, 'data');
  }

  /** Resolves with how the other side finished: `end`, or the errno of a broken connection. */
  async finished(): Promise<string> {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    if (!this.isOver) {
      await Promise.race(['end', 'close'].map((event) => once(this.socket, event, { signal }))).catch(() => {});
    }
    if (!this.isOver) throw new Error(`the connection was still open after ${PATIENCE_MS} ms`);
    return this.error ?? 'end';
  }
}

export interface ConnectOptions {
  readonly to?: string;
  readonly from?: string;
}

/** Ignores errors; a caller that needs them adds a listener. */
export async function connectSocket(port: number, { to = '127.0.0.1', from }: ConnectOptions = {}): Promise<Socket> {
  const socket = connect({ host: to, port, allowHalfOpen: true, ...(from !== undefined && { localAddress: from }) });
  await once(socket, 'connect');
  socket.on('error', () => {});
  return socket;
}

export async function connectTcp(port: number, options?: ConnectOptions): Promise<TcpPeer> {
  return new TcpPeer(await connectSocket(port, options));
}

/** What a server sends to a client that sends nothing. Rejects when the connection breaks. */
export async function ask(port: number, options?: ConnectOptions): Promise<string> {
  const peer = await connectTcp(port, options);
  const how = await peer.finished();
  peer.end();
  if (how !== 'end') throw new Error(`the connection broke: ${how}`);
  return peer.text;
}

/** How the connection of a client ends that gets no endpoint, as {@link TcpPeer.finished} says it. */
export async function refusal(port: number, request = ''): Promise<string> {
  // An engine in a thread of its own may be done before this one has seen that it is connected.
  const peer = await connectTcp(port).catch(errnoOf);
  if (typeof peer === 'string') return peer;
  if (request !== '') peer.send(request);
  const how = await peer.finished();
  peer.end();
  return how;
}

/** A server with the connections that it accepted. All are closed after the test. */
export class TcpBackend {
  readonly endpoint: NamedEndpoint;
  readonly sockets: Socket[] = [];
  readonly peers: TcpPeer[] = [];
  readonly #server: Server;

  private constructor(server: Server, onSocket: (socket: Socket, backend: TcpBackend) => void) {
    this.#server = server;
    const { address, port } = server.address() as AddressInfo;
    this.endpoint = namedEndpoint(address as Address, port);
    server.on('connection', (socket) => {
      socket.on('error', () => {});
      this.sockets.push(socket);
      onSocket(socket, this);
    });
  }

  /** Leaves reading and writing to the caller. */
  static async raw(t: TestContext, onSocket: (socket: Socket, backend: TcpBackend) => void): Promise<TcpBackend> {
    const server = createServer({ allowHalfOpen: true });
    server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 });
    await once(server, 'listening');
    const backend = new TcpBackend(server, onSocket);
    t.after(() => {
      backend.stop();
      for (const socket of backend.sockets) socket.destroy();
    });
    return backend;
  }

  static start(t: TestContext, onPeer: (peer: TcpPeer) => void = () => {}): Promise<TcpBackend> {
    return TcpBackend.raw(t, (socket, backend) => {
      const peer = new TcpPeer(socket);
      backend.peers.push(peer);
      onPeer(peer);
    });
  }

  /** Sends its name to every client and ends. */
  static named(t: TestContext, name: string): Promise<TcpBackend> {
    return TcpBackend.start(t, (peer) => peer.end(name));
  }

  /** Sends everything back, the end included. */
  static echo(t: TestContext): Promise<TcpBackend> {
    return TcpBackend.raw(t, (socket) => {
      socket.pipe(socket);
    });
  }

  /** From now on connecting is refused. */
  stop(): void {
    this.#server.close();
  }
}

/** An address that refuses connections. A bound socket reserves the port for the test. */
export function refusingEndpoint(t: TestContext): NamedEndpoint {
  const fd = must('socket', socket(AF_INET, SOCK_STREAM));
  t.after(() => close(fd));
  must('bind', bindTo(fd, encodeSocketAddress('127.0.0.1', 0)));
  const bound = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(fd, bound));
  return namedEndpoint('127.0.0.1' as Address, decodePort(bound.bytes));
}
