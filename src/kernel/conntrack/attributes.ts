/*
 * The messages of nf_conntrack_netlink and their attributes (uapi/linux/netfilter/nfnetlink_conntrack.h). Numbers in
 * them are in network order.
 */

const SUBSYSTEM = 1 << 8;
export const CT_NEW = SUBSYSTEM | 0;
export const CT_GET = SUBSYSTEM | 1;
export const CT_DELETE = SUBSYSTEM | 2;

export const CTA_TUPLE_ORIG = 1;
export const CTA_TUPLE_REPLY = 2;
export const CTA_STATUS = 3;
export const CTA_PROTOINFO = 4;
export const CTA_NAT_SRC = 6;
export const CTA_TIMEOUT = 7;
export const CTA_MARK = 8;
export const CTA_ID = 12;
export const CTA_ZONE = 18;
export const CTA_MARK_MASK = 21;
export const CTA_FILTER = 25;

/** Of a tuple. */
export const CTA_TUPLE_IP = 1;
export const CTA_TUPLE_PROTO = 2;
export const CTA_TUPLE_ZONE = 3;
export const CTA_IP_V4_SRC = 1;
export const CTA_IP_V4_DST = 2;
export const CTA_IP_V6_SRC = 3;
export const CTA_IP_V6_DST = 4;
export const CTA_PROTO_NUM = 1;
export const CTA_PROTO_SRC_PORT = 2;
export const CTA_PROTO_DST_PORT = 3;

/** Of {@link CTA_NAT_SRC}. */
export const CTA_NAT_V4_MINIP = 1;
export const CTA_NAT_V4_MAXIP = 2;
export const CTA_NAT_PROTO = 3;
export const CTA_NAT_V6_MINIP = 4;
export const CTA_NAT_V6_MAXIP = 5;
export const CTA_PROTONAT_PORT_MIN = 1;
export const CTA_PROTONAT_PORT_MAX = 2;

/** Of {@link CTA_PROTOINFO}. */
export const CTA_PROTOINFO_TCP = 1;
export const CTA_PROTOINFO_TCP_STATE = 1;

/** Of {@link CTA_FILTER}. */
export const CTA_FILTER_ORIG_FLAGS = 1;
export const CTA_FILTER_REPLY_FLAGS = 2;
export const FILTER_PROTO_NUM = 1 << 3;
export const FILTER_PROTO_DST_PORT = 1 << 5;

/** Of {@link CTA_STATUS} (nf_conntrack_common.h). */
export const IPS_ASSURED = 1 << 2;
export const IPS_CONFIRMED = 1 << 3;
export const IPS_DST_NAT = 1 << 5;

/** States of {@link CTA_PROTOINFO_TCP_STATE} (nf_conntrack_tcp.h). */
export const TCP_NONE = 0;
export const TCP_SYN_SENT = 1;
export const TCP_ESTABLISHED = 3;
export const TCP_TIME_WAIT = 7;
export const TCP_CLOSE = 8;
