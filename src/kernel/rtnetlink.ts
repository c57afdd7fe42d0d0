import type { Address, Cidr, IpFamily } from '../model/address.ts';
import { Memory } from '../sys/memory.ts';
import { AF_NETLINK, askNetlink, encodeMessage, NLM_F_DUMP, visitAttributes, visitMessages } from '../sys/netlink.ts';
import { ADDRESS_FAMILY, bindTo, recv, SOCK_RAW, socket } from '../sys/socket.ts';
import { EAGAIN, must } from '../sys/sys-error.ts';
import { ipText } from '../util/ip-bytes.ts';

const NETLINK_ROUTE = 0;
const BUFFER_BYTES = 32_768;

/* linux/rtnetlink.h */
const RTMGRP_LINK = 0x1;
const RTMGRP_IPV4_RULE = 0x80;
const RTMGRP_IPV6_RULE = 0x4_0000;
const RTMGRP_IPV4_IFADDR = 0x10;
const RTMGRP_IPV4_ROUTE = 0x40;
const RTMGRP_IPV6_IFADDR = 0x100;
const RTMGRP_IPV6_ROUTE = 0x400;
const RTM_NEWROUTE = 24;
const RTM_DELROUTE = 25;
const RTM_GETRULE = 34;

/* linux/fib_rules.h. `struct fib_rule_hdr`: family 0 · prefix lengths of destination 1 and source 2 · … */
const FIB_RULE_HEADER = 12;
const FRA_SRC = 2;

/**
 * The sources that rules of policy routing name (`ip rule`); none where the kernel has no such rules. Throws a
 * `SysError`.
 */
export function routedApart(family: IpFamily): readonly Cidr[] {
  const sources: Cidr[] = [];
  const header = Buffer.alloc(FIB_RULE_HEADER);
  header[0] = ADDRESS_FAMILY[family];
  askNetlink(NETLINK_ROUTE, encodeMessage(RTM_GETRULE, NLM_F_DUMP, [header]), (bytes, begin, end) => {
    const prefixLength = bytes[begin + 2] as number;
    visitAttributes(bytes, begin + FIB_RULE_HEADER, end, (type, from, to) => {
      if (type !== FRA_SRC) return;
      sources.push({ network: ipText(bytes.subarray(from, to)) as Address, prefixLength });
    });
  });
  return sources;
}

/** `struct sockaddr_nl`: family 0–1 · padding · port 4–7 · groups 8–11 */
const SOCKADDR_NL_BYTES = 12;

/** Notices when links, addresses, default routes or rules of policy routing of this machine change. */
export class RouteEvents {
  readonly #fd = must('socket', socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
  readonly #buffer = new Memory(BUFFER_BYTES);

  /** Throws a `SysError` when the kernel does not report them. */
  constructor() {
    const address = new Memory(SOCKADDR_NL_BYTES);
    address.bytes.writeUInt16LE(AF_NETLINK, 0);
    // A link that goes down loses its routes without events about these.
    const ofIpv4 = RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_RULE;
    const ofIpv6 = RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE | RTMGRP_IPV6_RULE;
    address.bytes.writeUInt32LE(RTMGRP_LINK | ofIpv4 | ofIpv6, 8);
    must('bind', bindTo(this.#fd, address));
  }

  /** Whether anything changed since the last call. */
  take(): boolean {
    let isChanged = false;
    for (;;) {
      const received = recv(this.#fd, this.#buffer, 0, this.#buffer.length);
      if (received === -EAGAIN) return isChanged;
      // ENOBUFS: there were more events than the socket holds.
      isChanged ||= received < 0 || this.#concernsNode(received);
      if (received <= 0) return isChanged;
    }
  }

  /** Routes to pods come and go with the pods; only default routes decide about the node's address. */
  #concernsNode(length: number): boolean {
    const { bytes } = this.#buffer;
    let concerns = false;
    try {
      visitMessages(bytes, length, (type, begin) => {
        // `struct rtmsg`: family 0 · length of the destination's prefix 1 · …
        concerns ||= (type !== RTM_NEWROUTE && type !== RTM_DELROUTE) || bytes[begin + 1] === 0;
      });
    } catch {
      // The message about a link with very many virtual functions is longer than the buffer, and truncated.
      return true;
    }
    return concerns;
  }
}
