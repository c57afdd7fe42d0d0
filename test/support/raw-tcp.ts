import type { Socket } from 'node:net';
import type { TestContext } from 'node:test';
import type { Address } from '../../src/model/address.ts';
import { type NamedEndpoint, namedEndpoint } from '../../src/model/endpoint.ts';
import { close } from '../../src/sys/descriptor.ts';
import { Memory } from '../../src/sys/memory.ts';
import {
  AF_INET,
  accept,
  bindTo,
  getsockname,
  listen,
  resetOnClose,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  send,
  socket,
} from '../../src/sys/socket.ts';
import { decodePort, encodeSocketAddress } from '../../src/sys/socket-address.ts';
import { must } from '../../src/sys/sys-error.ts';
import { waitFor } from '../netns/wait.ts';

export const MSG_OOB = 1;

/**
 * A server on libc's sockets: it acts within the call, before an engine in this thread gets its turn. Unread data stay
 * in the kernel.
 */
export class RawListener {
  readonly endpoint: NamedEndpoint;
  readonly #fd: number;
  readonly #t: TestContext;

  constructor(t: TestContext, { backlog = 4096, bind = '127.0.0.1' }: { backlog?: number; bind?: string } = {}) {
    this.#t = t;
    this.#fd = must('socket', socket(AF_INET, SOCK_STREAM));
    t.after(() => close(this.#fd));
    must('bind', bindTo(this.#fd, encodeSocketAddress(bind, 0)));
    must('listen', listen(this.#fd, backlog));
    const bound = new Memory(SOCKET_ADDRESS_BYTES);
    must('getsockname', getsockname(this.#fd, bound));
    this.endpoint = namedEndpoint('127.0.0.1' as Address, decodePort(bound.bytes));
  }

  /** Throws when there is no connection to accept. */
  accept(): RawPeer {
    return new RawPeer(this.#t, must('accept', accept(this.#fd, new Memory(SOCKET_ADDRESS_BYTES))));
  }

  accepted(): Promise<RawPeer> {
    return waitFor('a connection', () => {
      const fd = accept(this.#fd, new Memory(SOCKET_ADDRESS_BYTES));
      return fd >= 0 && new RawPeer(this.#t, fd);
    });
  }
}

export class RawPeer {
  readonly fd: number;
  #isOpen = true;

  constructor(t: TestContext, fd: number) {
    this.fd = fd;
    t.after(() => this.close());
  }

  /** Bytes that the kernel took. */
  send(data: string | Buffer): number {
    return sendTo(this.fd, data);
  }

  /** The same; a negative errno when it takes none. */
  trySend(data: Buffer): number {
    return trySendTo(this.fd, data);
  }

  reset(): void {
    resetOnClose(this.fd);
    this.close();
  }

  close(): void {
    if (this.#isOpen) close(this.fd);
    this.#isOpen = false;
  }
}

/** The descriptor of a socket of Node, which has no public API for it. */
export function descriptorOf(socket: Socket): number {
  return (socket as unknown as { readonly _handle: { readonly fd: number } })._handle.fd;
}

/** Bytes that the kernel took. */
export function sendTo(fd: number, data: string | Buffer, flags = 0): number {
  return must('send', trySendTo(fd, Buffer.from(data), flags));
}

function trySendTo(fd: number, bytes: Buffer, flags = 0): number {
  return send(fd, Memory.of(bytes), 0, bytes.length, flags);
}
