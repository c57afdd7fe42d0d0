import { KeptEntries, type SocketAddressWords } from '../kernel/conntrack/kept-entries.ts';
import { OwnConnections } from '../kernel/conntrack/own-connections.ts';
import { UdpTimeout } from '../kernel/conntrack/udp-timeout.ts';
import type { LocalPorts } from '../kernel/local-ports.ts';
import { type Address, familyOf } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { close } from '../sys/descriptor.ts';
import { Memory } from '../sys/memory.ts';
import { NetlinkSocket } from '../sys/netlink.ts';
import {
  bindLater,
  bindTo,
  connect,
  getsockname,
  limitPorts,
  markOption,
  repeatedPackets,
  SO_REUSEADDR,
  SOCK_DGRAM,
  SOCKET_ADDRESS_BYTES,
  SOL_SOCKET,
  type SocketOption,
  setOption,
  socket,
} from '../sys/socket.ts';
import { decodeAddress, encodeSocketAddress, familyOfText, portIn } from '../sys/socket-address.ts';
import { describeErrno, EADDRINUSE, EADDRNOTAVAIL, EINPROGRESS, EINVAL } from '../sys/sys-error.ts';
import type { Random } from '../util/clock.ts';
import { newPortSearch, type PortSearch, PortWalk } from './port-walk.ts';

/** Of one call, some tenths of a millisecond: a worker has others to serve. */
const PORT_TRIES = 32;
/** See {@link KeptDials.connectTcp}: no errno. */
export const SEARCHING = 1;
/** A flow has its port from all others, whatever their endpoints: with many flows, most ports are taken. */
const UDP_PORT_TRIES = 64;

const REUSE_ADDRESS: SocketOption = { level: SOL_SOCKET, name: SO_REUSEADDR, value: 1 };
/** In a socket address. */
const PORT_OFFSET = 2;

/** A client whose address endpoints see. */
export interface KeptClient {
  readonly address: Address;
  /** Its address and port. */
  readonly name: SocketAddressWords;
  /**
   * An attempt was not answered in time, or met an earlier connection ({@link KeptDials.hasLost}). Further ones have
   * other ports, towards the endpoint, too: a late answer does not reach them, and no endpoint remembers them.
   */
  needsNewPort: boolean;
}

interface KeptDialsSetup {
  /** Of our own connections: their entries carry it, too. */
  readonly mark: number;
  readonly ports: LocalPorts;
  readonly random: Random;
  /** Gets descriptors that stay open. */
  readonly own: (fd: number) => void;
}

/**
 * `used`: it had another connection before, see {@link KeptDials.kindOf}. `connected-later`: the caller connects it,
 * soon. What is only noticed when it connects must be noticed before, so it is bound to its port at once.
 */
type SocketState = 'new' | 'used' | 'connected-later';

/** How a dial has begun, or why it has not. */
export interface KeptDial {
  /** As `connect` returns it; or {@link SEARCHING}. */
  readonly status: number;
  /** Why it has failed, if that was not for the endpoint or the way to it. */
  readonly problem?: string;
  /** Of a UDP socket, for {@link KeptDials.forgetLater}. */
  readonly source?: KeptSource;
}

/** The way to one endpoint. */
interface Route {
  readonly endpoint: Memory;
  readonly endpointName: SocketAddressWords;
  /** This node's address on that way. */
  readonly kind: string;
  /** The same as a socket address, with any port. */
  readonly local: Memory;
  /** The same, with the port of the current try. */
  readonly source: Memory;
  readonly sourceName: SocketAddressWords;
}

/** Where a UDP flow leaves from. */
export interface KeptSource {
  readonly route: Route;
  readonly entries: KeptEntries;
  readonly port: number;
}

/**
 * Connects to endpoints in such a way that they see the client's address (docs/adr/0023): from an address of this node,
 * behind an entry of connection tracking that is made before. One object for each thread.
 */
export class KeptDials {
  readonly #udpTimeout = new UdpTimeout();
  readonly #mark: number;
  readonly #firstPort: number;
  readonly #ports: PortWalk;
  /**
   * To which sockets are bound. The kernel gives none of them to a connection that does not ask for one, so the node's
   * programs must have others.
   */
  readonly #boundPorts: PortWalk;
  /** Towards which no local port was free, of all. Until one is found again, dials do not try all. */
  readonly #full = new WeakSet<Endpoint>();
  readonly #random: Random;
  readonly #netfilter: NetlinkSocket;
  readonly #connections: OwnConnections;
  readonly #entries = new Map<string, KeptEntries>();
  readonly #local = new Memory(SOCKET_ADDRESS_BYTES);
  readonly #localName = this.#local.words();
  readonly #routes = new WeakMap<Endpoint, Route>();
  /** Connections to different endpoints can have one local port without being bound to it (Linux 6.3). */
  #canShare: boolean | undefined;

  constructor({ mark, ports, random, own }: KeptDialsSetup) {
    this.#mark = mark;
    const { first, last } = ports.range;
    this.#firstPort = first;
    this.#ports = new PortWalk(ports);
    const upperHalf = { first: Math.ceil((first + last) / 2), last };
    this.#boundPorts = new PortWalk({ range: upperHalf, reserved: ports.reserved });
    this.#random = random;
    this.#netfilter = new NetlinkSocket(own);
    this.#connections = new OwnConnections(own);
  }

  /**
   * A UDP flow that is silent for longer must end: without its entry, it would go on from this node's address. A tenth
   * is for timers that are late.
   */
  longestSilenceMs(nowMs: number): number {
    return this.#udpTimeout.at(nowMs) * 0.9;
  }

  /**
   * Says which TCP sockets that have been connected by this, and disconnected, can be connected to this endpoint. None
   * where it is `undefined`.
   */
  kindOf(endpoint: Endpoint): string | undefined {
    const route = this.#wayTo(endpoint);
    return 'status' in route || !this.#canShare ? undefined : route.kind;
  }

  /**
   * Like `connect`, for a TCP socket. {@link SEARCHING}: no local port is found yet. The caller goes on in a later
   * turn, with another socket and the same `search`, until every port of the range was tried.
   */
  connectTcp(fd: number, endpoint: Endpoint, client: KeptClient, state: SocketState, search: PortSearch): KeptDial {
    const route = this.#wayTo(endpoint);
    if ('status' in route) return route;
    const isShared = this.#canShareFrom(fd, route, state);
    if (!isShared) setOption(fd, REUSE_ADDRESS);
    const entries = this.#entriesOf(endpoint.address, 'TCP');
    const ports = isShared ? this.#ports : this.#boundPorts;
    for (let tries = 0; tries < PORT_TRIES; tries++) {
      const port = this.#nextPort(route, client, ports, search);
      if (port === undefined) {
        this.#full.add(endpoint);
        return this.#noPort(endpoint);
      }
      const inserted = insert(entries, route, client);
      if (inserted === -EADDRINUSE) continue;
      if (inserted < 0) return cannotInsert(inserted);
      const taken = isShared ? limitPorts(fd, port) : bindTo(fd, route.source);
      const status = taken || (state === 'connected-later' ? 0 : connectBound(fd, route.endpoint));
      if (hasBegun(status)) {
        this.#full.delete(endpoint);
        return { status };
      }
      entries.remove(route.sourceName, route.endpointName);
      // A connection that has just ended, or another program, has the port.
      if (!isTaken(status)) return { status };
    }
    return this.#full.has(endpoint) ? this.#noPort(endpoint) : { status: SEARCHING };
  }

  /** The same for a UDP socket. */
  connectUdp(fd: number, endpoint: Endpoint, client: KeptClient, isLater = false): KeptDial {
    const route = this.#wayTo(endpoint);
    if ('status' in route) return route;
    const entries = this.#entriesOf(endpoint.address, 'UDP');
    const search = newPortSearch();
    for (let tries = 0; tries < UDP_PORT_TRIES; tries++) {
      const port = this.#nextPort(route, client, this.#ports, search);
      if (port === undefined) break;
      const bound = bindTo(fd, route.source);
      if (bound === -EADDRINUSE) continue;
      if (bound < 0) break;
      const inserted = insert(entries, route, client);
      if (inserted < 0) return cannotInsert(inserted);
      const status = isLater ? 0 : connect(fd, route.endpoint);
      if (status < 0) entries.remove(route.sourceName, route.endpointName);
      return { status, source: { route, entries, port } };
    }
    return this.#noPort(endpoint);
  }

  /**
   * Before a socket is closed: of a connection that was not answered, or of a flow. What leaves from its port later
   * must not be taken for the client's.
   */
  forget(protocol: ProxiedProtocol, fd: number, { address, port }: Endpoint): void {
    if (this.#netfilter.open() < 0 || getsockname(fd, this.#local) < 0) return;
    this.#entriesOf(address, protocol).remove(this.#localName, encodeSocketAddress(address, port).words());
  }

  /** The same for a UDP flow, with the next {@link forgetAll}. Until then its socket must stay open. */
  forgetLater({ route, entries, port }: KeptSource): void {
    route.source.bytes.writeUInt16BE(port, PORT_OFFSET);
    entries.removeLater(route.sourceName, route.endpointName);
  }

  forgetAll(): void {
    for (const entries of this.#entries.values()) entries.removeAll();
  }

  /**
   * Whether an answered TCP connection has lost its entry on the way. A late answer to an earlier attempt, or the
   * answer of an endpoint that holds the client's port in TIME_WAIT and does not take the first packet for a new
   * connection's, makes the kernel send a reset, which ends the entry, and then its first packet again, which gets an
   * entry without a client.
   */
  hasLost(fd: number, { address, port }: Endpoint, { name }: KeptClient): boolean {
    if (repeatedPackets(fd) === 0) return false;
    if (getsockname(fd, this.#local) < 0) return true;
    const endpoint = encodeSocketAddress(address, port).words();
    return !this.#entriesOf(address, 'TCP').has(this.#localName, endpoint, name);
  }

  /** Where a client sent a datagram that arrived at `local`. `undefined` where connection tracking does not know. */
  destinationOf(local: SocketAddressWords, { address, name }: KeptClient): Address | undefined {
    return this.#netfilter.open() < 0 ? undefined : this.#entriesOf(address, 'UDP').destination(local, name);
  }

  /** The way to an endpoint, or why there is none. */
  #wayTo(endpoint: Endpoint): Route | KeptDial {
    const opened = this.#netfilter.open();
    if (opened < 0) return cannotInsert(opened);
    const known = this.#routes.get(endpoint);
    if (known !== undefined) return known;
    const route = this.#findRoute(endpoint);
    if (!('status' in route)) this.#routes.set(endpoint, route);
    return route;
  }

  #findRoute({ address, port }: Endpoint): Route | KeptDial {
    const endpoint = encodeSocketAddress(address, port);
    const fd = socket(familyOfText(address), SOCK_DGRAM);
    if (fd < 0) return { status: fd };
    setOption(fd, markOption(this.#mark));
    const local = new Memory(endpoint.length);
    // A connected UDP socket has sent nothing.
    const status = connect(fd, endpoint) || getsockname(fd, local);
    close(fd);
    if (status < 0) return { status };
    local.bytes.writeUInt16BE(0, PORT_OFFSET);
    const source = Memory.of(local.bytes);
    const kind = decodeAddress(local.bytes);
    return { endpoint, endpointName: endpoint.words(), kind, local, source, sourceName: source.words() };
  }

  /** False where the socket must be bound to its port at once. */
  #canShareFrom(fd: number, { local }: Route, state: SocketState): boolean {
    if (state !== 'new') return state === 'used';
    this.#canShare ??= limitPorts(fd, this.#firstPort) === 0;
    return this.#canShare && bindLater(fd) === 0 && bindTo(fd, local) === 0;
  }

  /**
   * Writes it to the source, too. The first is the client's own port where it is in the range, else one that follows
   * from it. An endpoint that holds the client's port in TIME_WAIT takes a new connection from it only if sequence
   * numbers or timestamps go on, and the kernel begins these for each pair of addresses and ports. So one port of a
   * client has one local port.
   */
  #nextPort({ source }: Route, client: KeptClient, ports: PortWalk, search: PortSearch): number | undefined {
    if (search.first < 0) {
      search.first = client.needsNewPort ? ports.anyPlace(this.#random()) : ports.placeOf(portIn(client.name));
    }
    const port = ports.next(search);
    if (port !== undefined) source.bytes.writeUInt16BE(port, PORT_OFFSET);
    return port;
  }

  #entriesOf(address: Address, protocol: ProxiedProtocol): KeptEntries {
    const family = familyOf(address);
    const key = family === 'IPv4' ? protocol : `${protocol}6`;
    let entries = this.#entries.get(key);
    if (entries === undefined) {
      entries = new KeptEntries(this.#netfilter, family, protocol, this.#mark, this.#connections);
      this.#entries.set(key, entries);
    }
    return entries;
  }

  #noPort(endpoint: Endpoint): KeptDial {
    // Or the address has left this node.
    this.#routes.delete(endpoint);
    return { status: -EADDRNOTAVAIL, problem: "the client's address cannot be kept: no local port is free for it" };
  }
}

function cannotInsert(status: number): KeptDial {
  return { status, problem: `the client's address cannot be kept: connection tracking says ${describeErrno(-status)}` };
}

/** A socket that was bound some time ago may have an address that has left this node. */
function connectBound(fd: number, endpoint: Memory): number {
  const status = connect(fd, endpoint);
  return status === -EINVAL ? -EADDRNOTAVAIL : status;
}

function hasBegun(status: number): boolean {
  return status === 0 || status === -EINPROGRESS;
}

function isTaken(status: number): boolean {
  return status === -EADDRINUSE || status === -EADDRNOTAVAIL;
}

function insert(entries: KeptEntries, { sourceName, endpointName }: Route, { name, needsNewPort }: KeptClient): number {
  if (needsNewPort) return entries.insertAnyPort(sourceName, endpointName, name);
  return entries.insert(sourceName, endpointName, name);
}
