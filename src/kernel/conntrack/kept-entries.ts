import type { Address, IpFamily } from '../../model/address.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { Memory } from '../../sys/memory.ts';
import {
  CONTENT_BEGIN,
  contentOf,
  encodeAttribute,
  encodeMessage,
  encodeNested,
  encodeWord,
  type NetlinkSocket,
  NLM_F_CREATE,
  NLM_F_EXCL,
  nfgenmsg,
  placeOf,
  visitAttributes,
} from '../../sys/netlink.ts';
import { ADDRESS_FAMILY } from '../../sys/socket.ts';
import { EADDRINUSE, EEXIST } from '../../sys/sys-error.ts';
import { ipText } from '../../util/ip-bytes.ts';
import { CT, CTA, IPS, TCP_STATE } from './attributes.ts';
import { PROTOCOL_NUMBER, tcpState } from './ctnetlink.ts';
import type { OwnConnections } from './own-connections.ts';

/** An entry without packets lasts this long. The first packet follows at once. */
const UNUSED_SECONDS = 10;

/**
 * A full table drops entries that are not assured to make room (`early_drop` in nf_conntrack_core.c), such as those of
 * UDP flows without an answer. What left from such a port next would show this node's address, so whoever fills the
 * table must not get rid of entries. Every new entry is confirmed; the kernel refuses a status that says otherwise.
 */
const STATUS = IPS.ASSURED | IPS.CONFIRMED;

const IP_ATTRIBUTES = {
  IPv4: { source: CTA.IP_V4_SRC, destination: CTA.IP_V4_DST, first: CTA.NAT_V4_MINIP, last: CTA.NAT_V4_MAXIP },
  IPv6: { source: CTA.IP_V6_SRC, destination: CTA.IP_V6_DST, first: CTA.NAT_V6_MINIP, last: CTA.NAT_V6_MAXIP },
} as const;

/** Deletions that are sent together. */
const MAX_REMOVALS = 64;

/** The words of a `struct sockaddr_in` or `sockaddr_in6`. */
export type SocketAddressWords = Int32Array;

/** Where the address is in them. The port is the upper half of the first word. */
const ADDRESS_WORDS = { IPv4: { first: 1, count: 1 }, IPv6: { first: 2, count: 4 } } as const;

/** A request into which addresses and ports are written again and again. */
class Template {
  readonly memory: Memory;
  readonly #words: Int32Array;
  readonly #layout: (typeof ADDRESS_WORDS)[IpFamily];

  constructor(family: IpFamily, message: Buffer) {
    this.memory = Memory.of(message);
    this.#words = this.memory.words();
    this.#layout = ADDRESS_WORDS[family];
  }

  /** The word at which an attribute's content begins. */
  place(...path: readonly number[]): number {
    return placeOf(this.memory.bytes, path) >> 2;
  }

  putAddress(place: number, from: SocketAddressWords): void {
    const { first, count } = this.#layout;
    for (let i = 0; i < count; i++) this.#words[place + i] = from[first + i] as number;
  }

  putPort(place: number, from: SocketAddressWords): void {
    // Padded to a word with zeros.
    this.#words[place] = (from[0] as number) >>> 16;
  }
}

/** A tuple of a template. */
class Tuple {
  readonly #template: Template;
  readonly #places: readonly [source: number, sourcePort: number, destination: number, destinationPort: number];

  constructor(template: Template, family: IpFamily, tuple: number) {
    const { source, destination } = IP_ATTRIBUTES[family];
    this.#template = template;
    this.#places = [
      template.place(tuple, CTA.TUPLE_IP, source),
      template.place(tuple, CTA.TUPLE_PROTO, CTA.PROTO_SRC_PORT),
      template.place(tuple, CTA.TUPLE_IP, destination),
      template.place(tuple, CTA.TUPLE_PROTO, CTA.PROTO_DST_PORT),
    ];
  }

  put(source: SocketAddressWords, destination: SocketAddressWords): void {
    const template = this.#template;
    const [from, fromPort, to, toPort] = this.#places;
    template.putAddress(from, source);
    template.putPort(fromPort, source);
    template.putAddress(to, destination);
    template.putPort(toPort, destination);
  }
}

function emptyTuple(type: number, family: IpFamily, protocol: ProxiedProtocol): Buffer {
  const { source, destination } = IP_ATTRIBUTES[family];
  const nowhere = Buffer.alloc(ADDRESS_WORDS[family].count * 4);
  return encodeNested(type, [
    encodeNested(CTA.TUPLE_IP, [encodeAttribute(source, nowhere), encodeAttribute(destination, nowhere)]),
    encodeNested(CTA.TUPLE_PROTO, [
      encodeAttribute(CTA.PROTO_NUM, Buffer.of(PROTOCOL_NUMBER[protocol])),
      encodeAttribute(CTA.PROTO_SRC_PORT, Buffer.alloc(2)),
      encodeAttribute(CTA.PROTO_DST_PORT, Buffer.alloc(2)),
    ]),
  ]);
}

/** Inserts an entry with a translation of the source. */
class Insertion {
  readonly memory: Memory;
  readonly #template: Template;
  readonly #original: Tuple;
  readonly #reply: Tuple;
  readonly #addresses: readonly number[];
  readonly #ports: readonly number[];

  /** `keepsPort`: else NAT chooses one. */
  constructor(family: IpFamily, protocol: ProxiedProtocol, mark: number, keepsPort: boolean) {
    const { first, last } = IP_ATTRIBUTES[family];
    const nowhere = Buffer.alloc(ADDRESS_WORDS[family].count * 4);
    const ports = [CTA.PROTONAT_PORT_MIN, CTA.PROTONAT_PORT_MAX];
    const portRange = encodeNested(
      CTA.NAT_PROTO,
      ports.map((each) => encodeAttribute(each, Buffer.alloc(2))),
    );
    const state = encodeNested(CTA.PROTOINFO_TCP, [
      encodeAttribute(CTA.PROTOINFO_TCP_STATE, Buffer.of(TCP_STATE.NONE)),
    ]);
    const message = encodeMessage(CT.NEW, NLM_F_CREATE | NLM_F_EXCL, [
      nfgenmsg(ADDRESS_FAMILY[family]),
      emptyTuple(CTA.TUPLE_ORIG, family, protocol),
      emptyTuple(CTA.TUPLE_REPLY, family, protocol),
      encodeWord(CTA.STATUS, STATUS),
      encodeWord(CTA.TIMEOUT, UNUSED_SECONDS),
      encodeWord(CTA.MARK, mark),
      encodeNested(CTA.NAT_SRC, [
        encodeAttribute(first, nowhere),
        encodeAttribute(last, nowhere),
        ...(keepsPort ? [portRange] : []),
      ]),
      ...(protocol === 'TCP' ? [encodeNested(CTA.PROTOINFO, [state])] : []),
    ]);
    const template = new Template(family, message);
    this.memory = template.memory;
    this.#template = template;
    this.#original = new Tuple(template, family, CTA.TUPLE_ORIG);
    this.#reply = new Tuple(template, family, CTA.TUPLE_REPLY);
    this.#addresses = [first, last].map((each) => template.place(CTA.NAT_SRC, each));
    this.#ports = keepsPort ? ports.map((each) => template.place(CTA.NAT_SRC, CTA.NAT_PROTO, each)) : [];
  }

  put(source: SocketAddressWords, endpoint: SocketAddressWords, client: SocketAddressWords): void {
    this.#original.put(source, endpoint);
    this.#reply.put(endpoint, source);
    for (const place of this.#addresses) this.#template.putAddress(place, client);
    for (const place of this.#ports) this.#template.putPort(place, client);
  }
}

/** What concerns the entry that has a tuple, one way or the other. */
class Lookup {
  readonly memory: Memory;
  readonly tuple: Tuple;

  constructor(type: number, family: IpFamily, protocol: ProxiedProtocol, id: readonly Buffer[] = []) {
    const tuple = emptyTuple(CTA.TUPLE_ORIG, family, protocol);
    const template = new Template(family, encodeMessage(type, 0, [nfgenmsg(ADDRESS_FAMILY[family]), tuple, ...id]));
    this.memory = template.memory;
    this.tuple = new Tuple(template, family, CTA.TUPLE_ORIG);
  }
}

/** An entry that is in the way. */
interface Found {
  /** As the kernel wrote it. */
  readonly id: Buffer;
  /** See {@link KeptEntries.#hasEnded}. */
  readonly hasEnded: boolean;
  readonly isOurs: boolean;
}

/**
 * Entries of connection tracking that rewrite the source of this program's own connections, from an address of this
 * node to the client's (docs/adr/0023). One object for each family and protocol of a thread. Results are 0 or a
 * negative errno. On the usual path there is no garbage, and there are two system calls.
 */
export class KeptEntries {
  readonly #netfilter: NetlinkSocket;
  readonly #protocol: ProxiedProtocol;
  readonly #mark: number;
  readonly #connections: Pick<OwnConnections, 'has'>;
  readonly #family: IpFamily;
  readonly #destination: number;
  readonly #layout: (typeof ADDRESS_WORDS)[IpFamily];
  readonly #insertion: Insertion;
  readonly #anyPort: Insertion;
  readonly #get: Lookup;
  readonly #delete: Lookup;
  readonly #removals: Memory;
  #removalBytes = 0;
  /** Identified, so that no entry is deleted that has taken its place meanwhile. */
  readonly #deleteFound: Lookup;
  readonly #deletedId: number;
  /** {@link #deleteFound} and {@link #insertion}. */
  readonly #batch: Memory;
  /** The last port had an entry already. */
  #expectsEnded = false;

  constructor(
    netfilter: NetlinkSocket,
    family: IpFamily,
    protocol: ProxiedProtocol,
    mark: number,
    connections: Pick<OwnConnections, 'has'>,
  ) {
    this.#netfilter = netfilter;
    this.#connections = connections;
    this.#family = family;
    this.#protocol = protocol;
    this.#mark = mark;
    this.#destination = IP_ATTRIBUTES[family].destination;
    this.#layout = ADDRESS_WORDS[family];
    this.#insertion = new Insertion(family, protocol, mark, true);
    this.#anyPort = new Insertion(family, protocol, mark, false);
    this.#get = new Lookup(CT.GET, family, protocol);
    this.#delete = new Lookup(CT.DELETE, family, protocol);
    this.#removals = new Memory(MAX_REMOVALS * this.#delete.memory.length);
    this.#deleteFound = new Lookup(CT.DELETE, family, protocol, [encodeWord(CTA.ID, 0)]);
    this.#deletedId = placeOf(this.#deleteFound.memory.bytes, [CTA.ID]);
    this.#batch = new Memory(this.#deleteFound.memory.length + this.#insertion.memory.length);
  }

  /**
   * Before a connection from `source` to `endpoint`: the endpoint will see `client`, with this port if nothing is in
   * the way. -EADDRINUSE when there is such a connection.
   */
  insert(source: SocketAddressWords, endpoint: SocketAddressWords, client: SocketAddressWords): number {
    this.#insertion.put(source, endpoint, client);
    // Above some hundred connections a second to one endpoint, most ports have such an entry: it saves a refusal.
    let same = this.#expectsEnded ? this.#find(source, endpoint) : undefined;
    if (same === undefined) {
      const { memory } = this.#insertion;
      let status = this.#netfilter.change(CT.NEW, memory);
      if (status === -EEXIST && this.#removalBytes > 0) {
        // It may be of the same client's last flow.
        this.removeAll();
        status = this.#netfilter.change(CT.NEW, memory);
      }
      this.#expectsEnded = status === -EEXIST;
      if (status !== -EEXIST) return status;
      same = this.#find(source, endpoint);
    }
    if (same !== undefined) {
      // Nobody else can have a UDP socket's port, so that entry is of an earlier flow.
      if (!same.hasEnded && this.#protocol === 'TCP') return -EADDRINUSE;
      const status = this.#instead(same, source, endpoint);
      if (status !== -EADDRINUSE) return status;
    }
    // The client has, or had, a connection of its own from this port to this endpoint, or through another Service.
    const other = this.#find(endpoint, client);
    if (other?.hasEnded && other.isOurs) return this.#instead(other, endpoint, client);
    return this.insertAnyPort(source, endpoint, client);
  }

  /** The same, with a port that NAT chooses. */
  insertAnyPort(source: SocketAddressWords, endpoint: SocketAddressWords, client: SocketAddressWords): number {
    this.#anyPort.put(source, endpoint, client);
    const status = this.#netfilter.change(CT.NEW, this.#anyPort.memory);
    return status === -EEXIST ? -EADDRINUSE : status;
  }

  /** Whether this connection has an entry with this client's address. */
  has(source: SocketAddressWords, endpoint: SocketAddressWords, client: SocketAddressWords): boolean {
    const seen = this.#addressOf(CTA.TUPLE_REPLY, source, endpoint);
    if (seen === undefined) return false;
    const { first, count } = this.#layout;
    return seen.equals(Buffer.from(client.buffer, client.byteOffset + first * 4, count * 4));
  }

  /** Once nothing more of a connection follows: one that was never established, or a UDP flow. */
  remove(source: SocketAddressWords, endpoint: SocketAddressWords): void {
    this.removeLater(source, endpoint);
    this.removeAll();
  }

  /** The same, with the next {@link removeAll}. */
  removeLater(source: SocketAddressWords, endpoint: SocketAddressWords): void {
    const { memory, tuple } = this.#delete;
    if (this.#removalBytes === this.#removals.length) this.removeAll();
    tuple.put(source, endpoint);
    this.#removals.bytes.set(memory.bytes, this.#removalBytes);
    this.#removalBytes += memory.length;
  }

  /** With one system call, and one to see that it is all. */
  removeAll(): void {
    if (this.#removalBytes > 0) this.#netfilter.changeAll(this.#removals, this.#removalBytes);
    this.#removalBytes = 0;
  }

  /** Where a client sent to, before NAT, whose packets arrive at `local`. `undefined` where nobody knows. */
  destination(local: SocketAddressWords, client: SocketAddressWords): Address | undefined {
    const address = this.#addressOf(CTA.TUPLE_ORIG, local, client);
    return address && (ipText(address) as Address);
  }

  /** The destination in one tuple of the entry that has this tuple. Overwritten by the next answer. */
  #addressOf(tuple: number, from: SocketAddressWords, to: SocketAddressWords): Buffer | undefined {
    this.#get.tuple.put(from, to);
    const length = this.#netfilter.get(this.#get.memory);
    if (length < 0) return undefined;
    const { bytes } = this.#netfilter.answer;
    const at = placeOf(bytes.subarray(0, length), [tuple, CTA.TUPLE_IP, this.#destination]);
    return bytes.subarray(at, at + this.#layout.count * 4);
  }

  #find(from: SocketAddressWords, to: SocketAddressWords): Found | undefined {
    const { memory, tuple } = this.#get;
    tuple.put(from, to);
    const length = this.#netfilter.get(memory);
    if (length < 0) return undefined;
    const { bytes } = this.#netfilter.answer;
    let id = Buffer.alloc(4);
    let mark = 0;
    let state = -1;
    let original: Buffer | undefined;
    visitAttributes(bytes, CONTENT_BEGIN, length, (type, begin, end) => {
      if (type === CTA.ID) id = Buffer.from(bytes.subarray(begin, end));
      else if (type === CTA.MARK) mark = bytes.readUInt32BE(begin);
      else if (type === CTA.PROTOINFO) state = tcpState(bytes, begin, end);
      else if (type === CTA.TUPLE_ORIG) original = bytes.subarray(begin, end);
    });
    return { id, hasEnded: this.#hasEnded(state, original), isOurs: mark === this.#mark };
  }

  /**
   * Connection tracking takes a connection for closed when an end that was sent twice is acknowledged, also while the
   * other direction goes on. So its socket has the last word.
   */
  #hasEnded(state: number, original: Buffer | undefined): boolean {
    if (state === TCP_STATE.CLOSE) return true;
    if (state !== TCP_STATE.TIME_WAIT) return false;
    const { source, destination } = IP_ATTRIBUTES[this.#family];
    const content = (...path: readonly number[]): Buffer => contentOf(original ?? Buffer.alloc(0), path);
    return !this.#connections.has(
      this.#family,
      { address: content(CTA.TUPLE_IP, source), port: content(CTA.TUPLE_PROTO, CTA.PROTO_SRC_PORT) },
      { address: content(CTA.TUPLE_IP, destination), port: content(CTA.TUPLE_PROTO, CTA.PROTO_DST_PORT) },
    );
  }

  /** Replaces `found`, whose tuple is given, by the entry of {@link #insertion}. */
  #instead({ id }: Found, from: SocketAddressWords, to: SocketAddressWords): number {
    const { memory, tuple } = this.#deleteFound;
    tuple.put(from, to);
    memory.bytes.set(id, this.#deletedId);
    const batch = this.#batch;
    batch.bytes.set(memory.bytes);
    batch.bytes.set(this.#insertion.memory.bytes, memory.length);
    const status = this.#netfilter.change(CT.NEW, batch, 2);
    return status === -EEXIST ? -EADDRINUSE : status;
  }
}
