import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import type { TestContext } from 'node:test';
import type { Address } from '../../src/model/address.ts';
import { type NamedEndpoint, namedEndpoint } from '../../src/model/endpoint.ts';
import { waitFor } from '../netns/wait.ts';

/**
 * A connected client: it receives replies only from the address and port that it sends to. It is closed after the test.
 */
export class UdpClient {
  readonly socket: Socket;
  readonly received: Buffer[] = [];
  /** How often ICMP has told that nobody takes its datagrams. */
  refusals = 0;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('message', (datagram) => this.received.push(datagram));
    socket.on('error', (err) => this.#failed(err));
  }

  static async connect(
    t: TestContext,
    port: number,
    { to = '127.0.0.1', from }: { readonly to?: string; readonly from?: string } = {},
  ): Promise<UdpClient> {
    const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 });
    socket.bind(0, from ?? '0.0.0.0');
    await once(socket, 'listening');
    socket.connect(port, to);
    await once(socket, 'connect');
    t.after(() => socket.close());
    return new UdpClient(socket);
  }

  get texts(): string[] {
    return this.received.map(String);
  }

  /** A refusal that waits to be read keeps the kernel from sending, once. */
  send(datagram: string | Buffer): void {
    this.socket.send(datagram, (err) => {
      if (this.#failed(err)) this.send(datagram);
    });
  }

  /** Resolves when the kernel has it: over loopback it is then in the queue of the receiver. */
  delivered(datagram: string): Promise<unknown> {
    return new Promise((resolve) => this.socket.send(datagram, resolve));
  }

  /** Whether it is a refusal. */
  #failed(err: Error | null): boolean {
    if (err === null || !('code' in err) || err.code !== 'ECONNREFUSED') return false;
    this.refusals++;
    return true;
  }

  /** Sends and waits for the next reply. */
  async ask(datagram: string | Buffer): Promise<string> {
    const count = this.received.length;
    this.send(datagram);
    return String(await waitFor(`a reply to ${String(datagram).slice(0, 20)}`, () => this.received[count]));
  }
}

interface Arrival {
  readonly datagram: Buffer;
  /** The source port, by which a backend tells flows apart. */
  readonly from: number;
}

export class UdpBackend {
  readonly endpoint: NamedEndpoint;
  readonly arrivals: Arrival[] = [];
  readonly #socket: Socket;
  #isStopped = false;

  private constructor(socket: Socket, answer: (datagram: Buffer, reply: (text: string | Buffer) => void) => void) {
    this.#socket = socket;
    const { address, port } = socket.address();
    this.endpoint = namedEndpoint(address as Address, port);
    socket.on('message', (datagram: Buffer, remote: RemoteInfo) => {
      this.arrivals.push({ datagram, from: remote.port });
      answer(datagram, (text) => {
        if (!this.#isStopped) socket.send(text, remote.port, remote.address, () => {});
      });
    });
  }

  static async start(
    t: TestContext,
    answer: (datagram: Buffer, reply: (text: string | Buffer) => void) => void = () => {},
  ): Promise<UdpBackend> {
    const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 });
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    const backend = new UdpBackend(socket, answer);
    t.after(() => socket.close());
    return backend;
  }

  static named(t: TestContext, name: string): Promise<UdpBackend> {
    return UdpBackend.start(t, (_datagram, reply) => reply(name));
  }

  static echo(t: TestContext): Promise<UdpBackend> {
    return UdpBackend.start(t, (datagram, reply) => reply(datagram));
  }

  /** The source ports seen so far, each once. */
  get flows(): number[] {
    return [...new Set(this.arrivals.map(({ from }) => from))];
  }

  get texts(): string[] {
    return this.arrivals.map(({ datagram }) => String(datagram));
  }

  /** Sends a datagram to a flow, unasked. */
  push(flow: number, text: string): void {
    this.#socket.send(text, flow, '127.0.0.1', () => {});
  }

  /** The same; see {@link UdpClient.delivered}. */
  pushed(flow: number, text: string): Promise<unknown> {
    return new Promise((resolve) => this.#socket.send(text, flow, '127.0.0.1', resolve));
  }

  /**
   * Afterwards ICMP refuses datagrams: the socket is connected elsewhere, so it receives none of them, but it still
   * reserves the port.
   */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const connected = once(this.#socket, 'connect');
    this.#socket.connect(9, '127.0.0.1');
    await connected;
  }
}
