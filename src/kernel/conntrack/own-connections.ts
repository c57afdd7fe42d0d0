import type { IpFamily } from '../../model/address.ts';
import { Memory } from '../../sys/memory.ts';
import { encodeMessage, NETLINK_SOCK_DIAG, NetlinkSocket } from '../../sys/netlink.ts';
import { ADDRESS_FAMILY, IPPROTO_TCP } from '../../sys/socket.ts';

/** An end of a connection, as connection tracking writes it. */
export interface End {
  readonly address: Uint8Array;
  readonly port: Uint8Array;
}

const SOCK_DIAG_BY_FAMILY = 20;

/*
 * struct inet_diag_req_v2   family 0 · protocol 1 · states 4–7 · source port 8–9 · destination port 10–11
 *                           source 12–27 · destination 28–43 · interface 44–47 · cookie 48–55
 * struct inet_diag_msg      family 0 · state 1
 */
const BEGIN = 16;
const REQUEST_BYTES = 56;
const SOURCE_PORT = BEGIN + 8;
const DESTINATION_PORT = BEGIN + 10;
const SOURCE = BEGIN + 12;
const DESTINATION = BEGIN + 28;
const COOKIE = BEGIN + 48;

const [TCP_TIME_WAIT, TCP_CLOSE, TCP_LISTEN] = [6, 7, 10];

/** Which TCP connections sockets of this network namespace have, by `sock_diag`. One object for each thread. */
export class OwnConnections {
  readonly #netlink: NetlinkSocket;
  readonly #request: Memory;

  /** `own` gets the descriptor when it is opened. */
  constructor(own: (fd: number) => void) {
    this.#netlink = new NetlinkSocket(own, NETLINK_SOCK_DIAG);
    const content = Buffer.alloc(REQUEST_BYTES);
    content[1] = IPPROTO_TCP;
    // In all states, with any cookie.
    content.fill(0xff, 4, 8);
    content.fill(0xff, COOKIE - BEGIN);
    this.#request = Memory.of(encodeMessage(SOCK_DIAG_BY_FAMILY, 0, [content]));
  }

  /** Whether a socket still has this connection. False where the kernel does not say. */
  has(family: IpFamily, source: End, destination: End): boolean {
    if (this.#netlink.open() < 0) return false;
    const { bytes } = this.#request;
    bytes[BEGIN] = ADDRESS_FAMILY[family];
    bytes.fill(0, SOURCE, COOKIE - 4);
    bytes.set(source.port, SOURCE_PORT);
    bytes.set(destination.port, DESTINATION_PORT);
    bytes.set(source.address, SOURCE);
    bytes.set(destination.address, DESTINATION);
    if (this.#netlink.get(this.#request) < 0) return false;
    const state = this.#netlink.answer.bytes[BEGIN + 1];
    return state !== TCP_TIME_WAIT && state !== TCP_CLOSE && state !== TCP_LISTEN;
  }
}
