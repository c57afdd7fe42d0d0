/*
 * The messages of nf_conntrack_netlink and their attributes (uapi/linux/netfilter/nfnetlink_conntrack.h). Numbers in
 * them are in network order.
 */

const SUBSYSTEM = 1 << 8;

export const CT = { NEW: SUBSYSTEM | 0, GET: SUBSYSTEM | 1, DELETE: SUBSYSTEM | 2 } as const;

export const CTA = {
  TUPLE_ORIG: 1,
  TUPLE_REPLY: 2,
  STATUS: 3,
  PROTOINFO: 4,
  NAT_SRC: 6,
  TIMEOUT: 7,
  MARK: 8,
  ID: 12,
  ZONE: 18,
  MARK_MASK: 21,
  FILTER: 25,
  // Of a tuple.
  TUPLE_IP: 1,
  TUPLE_PROTO: 2,
  TUPLE_ZONE: 3,
  IP_V4_SRC: 1,
  IP_V4_DST: 2,
  IP_V6_SRC: 3,
  IP_V6_DST: 4,
  PROTO_NUM: 1,
  PROTO_SRC_PORT: 2,
  PROTO_DST_PORT: 3,
  // Of `NAT_SRC`.
  NAT_V4_MINIP: 1,
  NAT_V4_MAXIP: 2,
  NAT_PROTO: 3,
  NAT_V6_MINIP: 4,
  NAT_V6_MAXIP: 5,
  PROTONAT_PORT_MIN: 1,
  PROTONAT_PORT_MAX: 2,
  // Of `PROTOINFO`.
  PROTOINFO_TCP: 1,
  PROTOINFO_TCP_STATE: 1,
  // Of `FILTER`.
  FILTER_ORIG_FLAGS: 1,
  FILTER_REPLY_FLAGS: 2,
} as const;

/** What a `FILTER` compares. */
export const FILTER = { PROTO_NUM: 1 << 3, PROTO_DST_PORT: 1 << 5 } as const;

/** Bits of `STATUS` (nf_conntrack_common.h). */
export const IPS = { ASSURED: 1 << 2, CONFIRMED: 1 << 3, DST_NAT: 1 << 5 } as const;

/** Values of `PROTOINFO_TCP_STATE` (nf_conntrack_tcp.h). */
export const TCP_STATE = { NONE: 0, SYN_SENT: 1, ESTABLISHED: 3, TIME_WAIT: 7, CLOSE: 8 } as const;
