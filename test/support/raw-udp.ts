import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Endpoint, NamedEndpoint } from '../../src/model/endpoint.ts';
import { DatagramInbox } from '../../src/sys/datagram-inbox.ts';
import { Memory } from '../../src/sys/memory.ts';
import {
  AF_INET,
  bindTo,
  connect,
  disconnect,
  getsockname,
  SOCK_DGRAM,
  SOCKET_ADDRESS_BYTES,
  socket,
  takeError,
} from '../../src/sys/socket.ts';
import { addressIn, decodePort, encodeSocketAddress, portIn } from '../../src/sys/socket-address.ts';
import { must } from '../../src/sys/sys-error.ts';
import { endpointAt } from '../compliance/data-plane/harness.ts';
import { RawPeer } from './raw-tcp.ts';

const LOOPBACK = '127.0.0.1';

export interface Question {
  readonly text: string | number;
  readonly from: Endpoint;
  /** From the endpoint's own port to the one that asked. */
  answer(text: string): void;
}

/** A UDP endpoint on libc's sockets, as {@link RawPeer}. */
export class RawUdpEndpoint extends RawPeer {
  readonly endpoint: NamedEndpoint;
  readonly #from = new Memory(SOCKET_ADDRESS_BYTES);
  readonly #address: string;

  constructor(t: TestContext, address = LOOPBACK) {
    const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
    super(t, fd);
    this.#address = address;
    must('bind', bindTo(fd, encodeSocketAddress(address, 0)));
    must('getsockname', getsockname(fd, this.#from));
    this.endpoint = endpointAt(address, decodePort(this.#from.bytes));
  }

  /** Throws when there is none. */
  question(): Question {
    const name = new Memory(16);
    const inbox = new DatagramInbox(1);
    assert.equal(inbox.receive(this.fd), 1, 'there is a question');
    const text = inbox.data.bytes.toString('latin1', 0, inbox.bytes(0));
    const words = inbox.replyPath(0).name.subarray(0, 4);
    name.words().set(words);
    const answer = (bytes: string) => {
      connect(this.fd, name);
      // Of an answer that came too late.
      takeError(this.fd);
      this.send(bytes);
      disconnect(this.fd);
      bindTo(this.fd, encodeSocketAddress(this.#address, this.endpoint.port));
    };
    return { text, from: endpointAt(addressIn(words), portIn(words)), answer };
  }
}

export function rawUdpClient(
  t: TestContext,
  port: number,
  { to = LOOPBACK, from }: { readonly to?: string; readonly from?: string } = {},
): RawPeer {
  const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
  const client = new RawPeer(t, fd);
  if (from !== undefined) must('bind', bindTo(fd, encodeSocketAddress(from, 0)));
  must('connect', connect(fd, encodeSocketAddress(to, port)));
  return client;
}
