import { KeptEntries, type SocketAddressWords } from '../kernel/conntrack/kept-entries.ts';
import type { LocalPorts } from '../kernel/local-ports.ts';
import { type Address, familyOf } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { close } from '../sys/descriptor.ts';
import { Memory } from '../sys/memory.ts';
import { NetfilterSocket } from '../sys/netlink.ts';
import {
  bindLater,
  bindTo,
  connect,
  getsockname,
  limitPorts,
  markOption,
  SO_REUSEADDR,
  SOCK_DGRAM,
  SOL_SOCKET,
  type SocketOption,
  setOption,
  socket,
} from '../sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../sys/socket-address.ts';
import { describeErrno, EADDRINUSE, EADDRNOTAVAIL, EINPROGRESS } from '../sys/sys-error.ts';
import type { Random } from '../util/clock.ts';

/** The first is the client's own port, where the kernel gives that out. */
const PORT_TRIES = 8;

const REUSE_ADDRESS: SocketOption = { level: SOL_SOCKET, name: SO_REUSEADDR, value: 1 };
/** In a socket address. */
const PORT_OFFSET = 2;

/** A client whose address endpoints see. */
export interface KeptClient {
  readonly address: Address;
  /** Its address and port. */
  readonly name: SocketAddressWords;
}

export interface KeptDialsSetup {
  /** Of our own connections: their entries carry it, too. */
  readonly mark: number;
  readonly ports: LocalPorts;
  readonly random: Random;
  /** Gets descriptors that stay open. */
  readonly own: (fd: number) => void;
}

/** The way to one endpoint. */
interface Route {
  readonly endpoint: Memory;
  readonly endpointName: SocketAddressWords;
  /** This node's address on that way, with any port. */
  readonly local: Memory;
  /** The same, with the port of the current try. */
  readonly source: Memory;
  readonly sourceName: SocketAddressWords;
}

/**
 * Connects to endpoints in such a way that they see the client's address (docs/adr/0023): from an address of this node,
 * behind an entry of connection tracking that is made before. One object for each thread.
 */
export class KeptDials {
  /** Why the last dial failed, if that was not for the endpoint or the way to it. */
  problem: string | undefined;
  /** Of the last dial. */
  localPort = 0;
  readonly #mark: number;
  readonly #ports: LocalPorts;
  readonly #random: Random;
  readonly #netfilter: NetfilterSocket;
  readonly #entries = new Map<string, KeptEntries>();
  readonly #routes = new WeakMap<Endpoint, Route>();
  /** Connections to different endpoints can have one local port without being bound to it (Linux 6.3). */
  #canShare: boolean | undefined;

  constructor({ mark, ports, random, own }: KeptDialsSetup) {
    this.#mark = mark;
    this.#ports = ports;
    this.#random = random;
    this.#netfilter = new NetfilterSocket(own);
  }

  /** Like `connect`, for a new TCP socket. */
  connectTcp(fd: number, endpoint: Endpoint, { name }: KeptClient): number {
    const route = this.#begin(endpoint);
    if (typeof route === 'number') return route;
    const entries = this.#entriesOf(endpoint, 'TCP');
    const isShared = this.#bindLater(fd, route);
    if (!isShared) setOption(fd, REUSE_ADDRESS);
    for (let tries = 0; tries < PORT_TRIES; tries++) {
      this.#choosePort(route, name, tries);
      const inserted = entries.insert(route.sourceName, route.endpointName, name);
      if (inserted === -EADDRINUSE) continue;
      if (inserted < 0) return this.#cannotInsert(inserted);
      const status = this.#connectFrom(fd, route, isShared);
      if (status === 0 || status === -EINPROGRESS) return status;
      entries.remove(route.sourceName, route.endpointName);
      // A connection that has ended, or another program, has the port.
      if (status !== -EADDRINUSE && status !== -EADDRNOTAVAIL) return status;
    }
    return this.#noPort(endpoint);
  }

  #connectFrom(fd: number, { source, endpoint }: Route, isShared: boolean): number {
    const status = isShared ? limitPorts(fd, this.localPort) : bindTo(fd, source);
    return status === 0 ? connect(fd, endpoint) : status;
  }

  /** Like `connect`, for a new UDP socket. */
  connectUdp(fd: number, endpoint: Endpoint, { name }: KeptClient): number {
    const route = this.#begin(endpoint);
    if (typeof route === 'number') return route;
    const entries = this.#entriesOf(endpoint, 'UDP');
    for (let tries = 0; tries < PORT_TRIES; tries++) {
      this.#choosePort(route, name, tries);
      const bound = bindTo(fd, route.source);
      if (bound === -EADDRINUSE) continue;
      if (bound < 0) break;
      const inserted = entries.insert(route.sourceName, route.endpointName, name);
      if (inserted < 0) return this.#cannotInsert(inserted);
      const status = connect(fd, route.endpoint);
      if (status < 0) entries.remove(route.sourceName, route.endpointName);
      return status;
    }
    return this.#noPort(endpoint);
  }

  /** Nothing more follows of a connection or flow that left from this port: it was not answered, or is over. */
  remove(protocol: ProxiedProtocol, endpoint: Endpoint, localPort: number): void {
    const route = this.#routes.get(endpoint);
    if (route === undefined) return;
    this.#setPort(route, localPort);
    this.#entriesOf(endpoint, protocol).remove(route.sourceName, route.endpointName);
  }

  /** The way to an endpoint, or a negative errno. */
  #begin(endpoint: Endpoint): Route | number {
    this.problem = undefined;
    const opened = this.#netfilter.open();
    if (opened < 0) return this.#cannotInsert(opened);
    const known = this.#routes.get(endpoint);
    if (known !== undefined) return known;
    const route = this.#findRoute(endpoint);
    if (typeof route !== 'number') this.#routes.set(endpoint, route);
    return route;
  }

  #findRoute({ address, port }: Endpoint): Route | number {
    const endpoint = encodeSocketAddress(address, port);
    const fd = socket(familyOfText(address), SOCK_DGRAM);
    if (fd < 0) return fd;
    setOption(fd, markOption(this.#mark));
    const local = new Memory(endpoint.length);
    // A connected UDP socket has sent nothing.
    const status = connect(fd, endpoint) || getsockname(fd, local);
    close(fd);
    if (status < 0) return status;
    local.bytes.writeUInt16BE(0, PORT_OFFSET);
    const source = Memory.of(local.bytes);
    return { endpoint, endpointName: endpoint.words(), local, source, sourceName: source.words() };
  }

  /** False where the socket must be bound to its port at once. */
  #bindLater(fd: number, { local }: Route): boolean {
    this.#canShare ??= limitPorts(fd, this.#ports.range.first) === 0;
    return this.#canShare && bindLater(fd) === 0 && bindTo(fd, local) === 0;
  }

  #choosePort(route: Route, client: SocketAddressWords, tries: number): void {
    const own = portOf(client);
    this.#setPort(route, tries === 0 && this.#mayUse(own) ? own : this.#randomPort());
  }

  #setPort({ source }: Route, port: number): void {
    source.bytes.writeUInt16BE(port, PORT_OFFSET);
    this.localPort = port;
  }

  #mayUse(port: number): boolean {
    const { range, reserved } = this.#ports;
    return port >= range.first && port <= range.last && !reserved.has(port);
  }

  #randomPort(): number {
    const { first, last } = this.#ports.range;
    return first + Math.floor(this.#random() * (last - first + 1));
  }

  #entriesOf({ address }: Endpoint, protocol: ProxiedProtocol): KeptEntries {
    const family = familyOf(address);
    const key = family === 'IPv4' ? protocol : `${protocol}6`;
    let entries = this.#entries.get(key);
    if (entries === undefined) {
      entries = new KeptEntries(this.#netfilter, family, protocol, this.#mark);
      this.#entries.set(key, entries);
    }
    return entries;
  }

  #cannotInsert(errno: number): number {
    this.problem = `the client's address cannot be kept: connection tracking says ${describeErrno(-errno)}`;
    return errno;
  }

  #noPort(endpoint: Endpoint): number {
    // Or the address has left this node.
    this.#routes.delete(endpoint);
    this.problem = "the client's address cannot be kept: no local port is free for it";
    return -EADDRNOTAVAIL;
  }
}

function portOf(name: SocketAddressWords): number {
  const inNetworkOrder = (name[0] as number) >>> 16;
  return ((inNetworkOrder & 0xff) << 8) | (inNetworkOrder >> 8);
}
