import type { Address, IpFamily } from '../../model/address.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import {
  askNetfilter,
  dumpNetfilter,
  encodeAttribute,
  encodeMessage,
  encodeNested,
  NLM_F_DUMP,
  nfgenmsg,
  visitAttributes,
} from '../../sys/netlink.ts';
import { ADDRESS_FAMILY } from '../../sys/socket.ts';
import { EINVAL, ENOENT, EPERM, SysError } from '../../sys/sys-error.ts';
import { ipText } from '../../util/ip-bytes.ts';
import { CT, CTA, FILTER, IPS, TCP_STATE } from './attributes.ts';
import type { Entry, EntryFilter, IsStale } from './stale.ts';

/** The kernel's refusals of this many deletions fit into a socket's receive buffer. */
const BATCH = 64;

export const PROTOCOL_NUMBER = { TCP: 6, UDP: 17 } as const satisfies Record<ProxiedProtocol, number>;

/** An entry with the attributes that identify it, and no entry that replaced it, in a request to delete it. */
export interface KernelEntry extends Entry {
  readonly identity: readonly Uint8Array[];
}

/**
 * Deletes the stale entries of a family. Returns how many it deleted. Rejects with an Error that says what to do.
 *
 * New entries behind the walk are right, because rules were installed before it began.
 */
export async function deleteStaleEntries(family: IpFamily, among: EntryFilter, isStale: IsStale): Promise<number> {
  return await deleteEntries(family, dumpRequest(family, among), (bytes, begin, end) => {
    const entry = readEntry(bytes, begin, end, among.protocol);
    return entry !== undefined && isStale(entry) ? entry.identity : undefined;
  });
}

/**
 * Deletes the entries of a family whose identity `choose` returns, among those that a request dumps. Returns how many
 * it deleted. Rejects with an Error that says what to do. It deletes while it reads, which does not disturb the
 * kernel's walk.
 */
export async function deleteEntries(
  family: IpFamily,
  request: Buffer,
  choose: (bytes: Buffer, begin: number, end: number) => readonly Uint8Array[] | undefined,
): Promise<number> {
  let deleted = 0;
  let requests: Buffer[] = [];
  const deleteBatch = () => {
    // An entry that is gone already does not count.
    if (requests.length > 0) deleted += requests.length - askNetfilter(Buffer.concat(requests), { tolerated: ENOENT });
    requests = [];
  };
  try {
    await dumpNetfilter(request, (bytes, begin, end) => {
      const identity = choose(bytes, begin, end);
      if (identity === undefined) return;
      requests.push(encodeMessage(CT.DELETE, 0, [nfgenmsg(ADDRESS_FAMILY[family]), ...identity]));
      if (requests.length === BATCH) deleteBatch();
    });
    deleteBatch();
  } catch (error) {
    throw error instanceof SysError ? explained(error.errno) : error;
  }
  return deleted;
}

/** What to do about a refusal. */
export function explained(errno: number): Error {
  const { message } = new SysError('cannot read or change the connection tracking table', errno);
  if (errno === EPERM) return new Error(`${message}; give this program CAP_NET_ADMIN`);
  if (errno === EINVAL) return new Error(`${message}; load the kernel module nf_conntrack_netlink`);
  return new Error(message);
}

/**
 * Requests entries of a family: the kernel searches its table much faster than it reports it. There is no filter by
 * address, because Linux 6.18 still inverts a filter by IPv6 address. Kernels before 5.8 ignore the filter and report
 * all entries, of other protocols too.
 */
export function dumpRequest(family: IpFamily, { protocol: name, port }: EntryFilter): Buffer {
  const protocol = [encodeAttribute(CTA.PROTO_NUM, Buffer.of(PROTOCOL_NUMBER[name]))];
  let flags = FILTER.PROTO_NUM;
  if (port !== undefined) {
    flags |= FILTER.PROTO_DST_PORT;
    protocol.push(encodeAttribute(CTA.PROTO_DST_PORT, Buffer.of(port >> 8, port & 0xff)));
  }
  return encodeMessage(CT.GET, NLM_F_DUMP, [
    nfgenmsg(ADDRESS_FAMILY[family]),
    encodeNested(CTA.TUPLE_ORIG, [encodeNested(CTA.TUPLE_PROTO, protocol)]),
    encodeNested(CTA.FILTER, [
      encodeAttribute(CTA.FILTER_ORIG_FLAGS, Buffer.of(flags, 0, 0, 0)),
      encodeAttribute(CTA.FILTER_REPLY_FLAGS, Buffer.alloc(4)),
    ]),
  ]);
}

/**
 * The entry in one message of a dump; `undefined` unless it is of the protocol and in the default zone, the only zone
 * that iptables rules see. It refers to `bytes`, so it must be used before they are overwritten.
 */
export function readEntry(
  bytes: Buffer,
  begin: number,
  end: number,
  protocol: ProxiedProtocol,
): KernelEntry | undefined {
  let original: ReturnType<typeof readTuple> | undefined;
  let reply: typeof original;
  let status = 0;
  let state = -1;
  let isZoned = false;
  const identity: Uint8Array[] = [];
  visitAttributes(bytes, begin, end, (type, from, to) => {
    if (type === CTA.TUPLE_ORIG) original = readTuple(bytes, from, to);
    else if (type === CTA.TUPLE_REPLY) reply = readTuple(bytes, from, to);
    else if (type === CTA.STATUS) status = bytes.readUInt32BE(from);
    else if (type === CTA.PROTOINFO) state = tcpState(bytes, from, to);
    else if (type === CTA.ZONE) isZoned = true;
    if (type === CTA.TUPLE_ORIG || type === CTA.ID) identity.push(bytes.subarray(from - 4, to));
  });
  if (original === undefined || reply === undefined) return undefined;
  if (original.protocol !== PROTOCOL_NUMBER[protocol] || isZoned || original.isZoned || reply.isZoned) return undefined;
  const { destination, destinationPort } = original;
  const { source } = reply;
  return {
    destination: () => addressAt(bytes, destination),
    destinationPort,
    replyPort: reply.sourcePort,
    replySource: () => addressAt(bytes, source),
    isRedirected: (status & IPS.DST_NAT) !== 0,
    isOpening: state === TCP_STATE.SYN_SENT,
    isEstablished: state === TCP_STATE.ESTABLISHED,
    identity,
  };
}

/** From `CTA.PROTOINFO`; -1 unless the entry is of TCP. */
export function tcpState(bytes: Buffer, begin: number, end: number): number {
  let state = -1;
  visitAttributes(bytes, begin, end, (type, from, to) => {
    if (type !== CTA.PROTOINFO_TCP) return;
    visitAttributes(bytes, from, to, (inner, at) => {
      if (inner === CTA.PROTOINFO_TCP_STATE) state = bytes.readUInt8(at);
    });
  });
  return state;
}

/** Where an attribute's content begins and ends. */
type Place = readonly [begin: number, end: number];

function addressAt(bytes: Buffer, [begin, end]: Place): Address {
  return ipText(bytes.subarray(begin, end)) as Address;
}

function readTuple(bytes: Buffer, begin: number, end: number) {
  const nowhere: Place = [0, 0];
  const tuple = {
    protocol: 0,
    sourcePort: 0,
    destinationPort: 0,
    isZoned: false,
    source: nowhere,
    destination: nowhere,
  };
  visitAttributes(bytes, begin, end, (part, partBegin, partEnd) => {
    if (part === CTA.TUPLE_ZONE) tuple.isZoned = true;
    else if (part === CTA.TUPLE_IP) {
      visitAttributes(bytes, partBegin, partEnd, (type, from, to) => {
        if (type === CTA.IP_V4_DST || type === CTA.IP_V6_DST) tuple.destination = [from, to];
        else if (type === CTA.IP_V4_SRC || type === CTA.IP_V6_SRC) tuple.source = [from, to];
      });
    } else if (part === CTA.TUPLE_PROTO) {
      visitAttributes(bytes, partBegin, partEnd, (type, from) => {
        if (type === CTA.PROTO_NUM) tuple.protocol = bytes.readUInt8(from);
        else if (type === CTA.PROTO_SRC_PORT) tuple.sourcePort = bytes.readUInt16BE(from);
        else if (type === CTA.PROTO_DST_PORT) tuple.destinationPort = bytes.readUInt16BE(from);
      });
    }
  });
  return tuple;
}
