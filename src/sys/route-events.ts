import { Memory } from './memory.ts';
import { AF_NETLINK, NETLINK_BUFFER_BYTES, routeSocket, visitMessages } from './netlink.ts';
import { bindTo, recv } from './socket.ts';
import { EAGAIN, must } from './sys-error.ts';

/* linux/rtnetlink.h */
const RTMGRP_LINK = 0x1;
const RTMGRP_IPV4_IFADDR = 0x10;
const RTMGRP_IPV4_ROUTE = 0x40;
const RTMGRP_IPV6_IFADDR = 0x100;
const RTMGRP_IPV6_ROUTE = 0x400;
const RTM_NEWROUTE = 24;
const RTM_DELROUTE = 25;

/** `struct sockaddr_nl`: family 0–1 · padding · port 4–7 · groups 8–11 */
const ADDRESS_BYTES = 12;

/** Hears from the kernel which of this machine's links, addresses and default routes come and go. */
export class RouteEvents {
  readonly #fd = must('socket', routeSocket());
  readonly #buffer = new Memory(NETLINK_BUFFER_BYTES);

  /** Throws a SysError where that cannot be had. */
  constructor() {
    const address = new Memory(ADDRESS_BYTES);
    address.bytes.writeUInt16LE(AF_NETLINK, 0);
    // A link that goes down takes its routes with it without a word about them.
    const groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
    address.bytes.writeUInt32LE(groups, 8);
    must('bind', bindTo(this.#fd, address));
  }

  /** Whether there was anything since the last call. */
  take(): boolean {
    let isChanged = false;
    for (;;) {
      const received = recv(this.#fd, this.#buffer, 0, this.#buffer.length);
      if (received === -EAGAIN) return isChanged;
      // ENOBUFS: there was more than the socket holds.
      isChanged ||= received < 0 || this.#concernsNode(received);
      if (received <= 0) return isChanged;
    }
  }

  /** Routes to pods come and go with them; only default routes say what the node's address is. */
  #concernsNode(length: number): boolean {
    const { bytes } = this.#buffer;
    let concerns = false;
    try {
      visitMessages(bytes, length, (type, begin) => {
        // `struct rtmsg`: family 0 · length of the destination's prefix 1 · …
        concerns ||= (type !== RTM_NEWROUTE && type !== RTM_DELROUTE) || bytes[begin + 1] === 0;
      });
    } catch {
      // What is said of a link with very many virtual functions is longer than the buffer, and cut off.
      return true;
    }
    return concerns;
  }
}
