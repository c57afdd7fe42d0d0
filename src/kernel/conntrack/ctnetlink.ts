import type { Address, IpFamily } from '../../model/address.ts';
import { encodeAttribute, encodeMessage, encodeNested, NLM_F_DUMP, visitAttributes } from '../../sys/netlink.ts';
import { AF_INET, AF_INET6 } from '../../sys/socket.ts';
import { formatAddress } from '../../sys/socket-address.ts';
import type { UdpEntry } from './stale.ts';

/*
 * The messages of nf_conntrack_netlink (uapi/linux/netfilter/nfnetlink_conntrack.h). Behind the header of netlink comes
 * struct nfgenmsg: family 0 · version 1 · resource 2–3.
 */

const SUBSYSTEM = 1 << 8;
const GET = SUBSYSTEM | 1;
const DELETE = SUBSYSTEM | 2;
const NFGENMSG = 4;

const CTA_TUPLE_ORIG = 1;
const CTA_TUPLE_REPLY = 2;
const CTA_STATUS = 3;
const CTA_ID = 12;
const CTA_ZONE = 18;
const CTA_FILTER = 25;
const CTA_TUPLE_IP = 1;
const CTA_TUPLE_PROTO = 2;
const CTA_TUPLE_ZONE = 3;
const CTA_IP_V4_SRC = 1;
const CTA_IP_V4_DST = 2;
const CTA_IP_V6_SRC = 3;
const CTA_IP_V6_DST = 4;
const CTA_PROTO_NUM = 1;
const CTA_PROTO_SRC_PORT = 2;
const CTA_PROTO_DST_PORT = 3;
const CTA_FILTER_ORIG_FLAGS = 1;
const CTA_FILTER_REPLY_FLAGS = 2;

const FILTER_PROTO_NUM = 1 << 3;
const FILTER_PROTO_DST_PORT = 1 << 5;
const IPS_DST_NAT = 1 << 5;
const UDP = 17;

/** A UDP entry, and what names it to the kernel. */
export interface KernelEntry extends UdpEntry {
  /** The attributes of a request to delete this very entry, and not one that came in its place. */
  readonly identity: readonly Uint8Array[];
}

/**
 * Asks for the UDP entries of a family, to one original destination port or to any: the kernel goes through its table
 * much faster than it can tell of it. Not for one destination: 6.18 still takes a filter by IPv6 address for its
 * opposite. Kernels before 5.8 pass over the filter and tell of everything, other protocols too.
 */
export function dumpRequest(family: IpFamily, port: number | undefined): Buffer {
  const protocol = [encodeAttribute(CTA_PROTO_NUM, Buffer.of(UDP))];
  let flags = FILTER_PROTO_NUM;
  if (port !== undefined) {
    flags |= FILTER_PROTO_DST_PORT;
    protocol.push(encodeAttribute(CTA_PROTO_DST_PORT, Buffer.of(port >> 8, port & 0xff)));
  }
  return encodeMessage(GET, NLM_F_DUMP, [
    nfgenmsg(family),
    encodeNested(CTA_TUPLE_ORIG, [encodeNested(CTA_TUPLE_PROTO, protocol)]),
    encodeNested(CTA_FILTER, [
      encodeAttribute(CTA_FILTER_ORIG_FLAGS, Buffer.of(flags, 0, 0, 0)),
      encodeAttribute(CTA_FILTER_REPLY_FLAGS, Buffer.alloc(4)),
    ]),
  ]);
}

/** The kernel answers only if it cannot. */
export function deleteRequest(family: IpFamily, entry: KernelEntry): Buffer {
  return encodeMessage(DELETE, 0, [nfgenmsg(family), ...entry.identity]);
}

/**
 * The entry in the content of a message of a dump; `undefined` unless it is one of UDP in the default zone: iptables
 * rules see no other. It refers to `bytes`, so it must be used before they are overwritten.
 */
export function readEntry(bytes: Buffer, begin: number, end: number): KernelEntry | undefined {
  let original: Tuple | undefined;
  let reply: Tuple | undefined;
  let status = 0;
  let isZoned = false;
  const identity: Uint8Array[] = [];
  visitAttributes(bytes, begin + NFGENMSG, end, (type, from, to) => {
    if (type === CTA_TUPLE_ORIG) original = readTuple(bytes, from, to);
    else if (type === CTA_TUPLE_REPLY) reply = readTuple(bytes, from, to);
    else if (type === CTA_STATUS) status = bytes.readUInt32BE(from);
    else if (type === CTA_ZONE) isZoned = true;
    if (type === CTA_TUPLE_ORIG || type === CTA_ID) identity.push(bytes.subarray(from - 4, to));
  });
  if (original === undefined || reply === undefined) return undefined;
  if (original.protocol !== UDP || isZoned || original.isZoned || reply.isZoned) return undefined;
  const { destination, destinationPort } = original;
  const { source } = reply;
  return {
    destination: () => addressAt(bytes, destination),
    destinationPort,
    replyPort: reply.sourcePort,
    replySource: () => addressAt(bytes, source),
    isRedirected: (status & IPS_DST_NAT) !== 0,
    identity,
  };
}

/** Where something begins and ends. */
type Place = readonly [begin: number, end: number];

const NOWHERE: Place = [0, 0];

function addressAt(bytes: Buffer, [begin, end]: Place): Address {
  return formatAddress(bytes.subarray(begin, end)) as Address;
}

interface Tuple {
  protocol: number;
  source: Place;
  destination: Place;
  sourcePort: number;
  destinationPort: number;
  isZoned: boolean;
}

function readTuple(bytes: Buffer, begin: number, end: number): Tuple {
  const tuple: Tuple = {
    protocol: 0,
    source: NOWHERE,
    destination: NOWHERE,
    sourcePort: 0,
    destinationPort: 0,
    isZoned: false,
  };
  visitAttributes(bytes, begin, end, (part, partBegin, partEnd) => {
    if (part === CTA_TUPLE_ZONE) tuple.isZoned = true;
    else if (part === CTA_TUPLE_IP) {
      visitAttributes(bytes, partBegin, partEnd, (type, from, to) => {
        if (type === CTA_IP_V4_DST || type === CTA_IP_V6_DST) tuple.destination = [from, to];
        else if (type === CTA_IP_V4_SRC || type === CTA_IP_V6_SRC) tuple.source = [from, to];
      });
    } else if (part === CTA_TUPLE_PROTO) {
      visitAttributes(bytes, partBegin, partEnd, (type, from) => {
        if (type === CTA_PROTO_NUM) tuple.protocol = bytes.readUInt8(from);
        else if (type === CTA_PROTO_SRC_PORT) tuple.sourcePort = bytes.readUInt16BE(from);
        else if (type === CTA_PROTO_DST_PORT) tuple.destinationPort = bytes.readUInt16BE(from);
      });
    }
  });
  return tuple;
}

function nfgenmsg(family: IpFamily): Buffer {
  return Buffer.of(family === 'IPv4' ? AF_INET : AF_INET6, 0, 0, 0);
}
