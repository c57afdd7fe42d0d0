import { accessSync, constants, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { basename } from 'node:path';
import type { Exec } from '../../kernel/iptables/exec.ts';
import { ListeningSockets, readTable } from '../../kernel/local-ports.ts';
import { isTrusted, type NodeHolder, nodeHolder } from '../../kernel/node-claim.ts';
import type { Address } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { Clock } from '../../util/clock.ts';

/** A process of this machine, as far as /proc shows it. */
export interface HostProcess {
  readonly pid: number;
  /** Of its executable, or where that may not be seen, as `ps` shows it. */
  readonly name: string;
}

/** `30080/TCP`: at any address. */
export type SocketPort = `${number}/${ProxiedProtocol}`;

/** All that the checks see of this machine. Tests have another one. */
export type Machine = ReturnType<typeof thisMachine>;

/** A proxy of this program, of any version. */
export function isThisProgram({ name }: HostProcess): boolean {
  return name === 'kube-userspace-proxy';
}

/** `undefined` also for a file that holds no whole number, such as `max` in cgroups. */
export function numberIn({ read }: Pick<Machine, 'read'>, path: string): number | undefined {
  const text = read(path)?.trim() ?? '';
  return /^-?\d+$/.test(text) ? Number(text) : undefined;
}

export function thisMachine(exec: Exec, clock: Clock) {
  const sockets = new ListeningSockets(clock);
  const isListening = (address: Address, port: number, protocol: ProxiedProtocol) =>
    sockets.isListening(address, port, protocol);
  return {
    exec,
    read,
    isWritable,
    interfaces,
    neighbours,
    servingProxy,
    tryToBind,
    isListening,
    receivers,
    listenersOn,
  };
}

/** The text of a file below `/proc` or `/sys`; `undefined` where it cannot be read. */
function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Names, also of interfaces that are down. */
function interfaces(): readonly string[] {
  const table = read('/proc/net/dev') ?? '';
  return [...Object.keys(networkInterfaces()), ...[...table.matchAll(/^\s*([^\s:]+):/gm)].map(([, name = '']) => name)];
}

/** Other processes that can be seen and share our network. */
function neighbours(): readonly HostProcess[] {
  const ours = linkOf('/proc/self/ns/net');
  return pids().flatMap((pid) => {
    if (pid === process.pid || linkOf(`/proc/${pid}/ns/net`) !== ours) return [];
    return processOf(pid) ?? [];
  });
}

/** The proxy of this program that serves this node. */
async function servingProxy(): Promise<NodeHolder | undefined> {
  const holder = await nodeHolder();
  return holder !== undefined && isTrusted(holder) ? holder : undefined;
}

/** Listens there for a moment. `undefined` on success, else the code of the error. */
function tryToBind({ address, port }: Endpoint): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host: address, port }, () => server.close(() => resolve(undefined)));
  });
}

/**
 * `sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode …` of a socket that receives
 * from anybody: 0A is a listener of TCP, 07 an unconnected socket of UDP.
 */
const RECEIVER = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ (?:0A|07) \S+ \S+ \S+\s+\d+\s+\d+ (\d+) /;

/** Every port at which a program receives, each with its sockets. */
function receivers(): ReadonlyMap<SocketPort, ReadonlySet<string>> {
  const found = new Map<SocketPort, Set<string>>();
  for (const protocol of ['TCP', 'UDP'] as const) {
    const file = `/proc/net/${protocol.toLowerCase()}`;
    for (const line of [file, `${file}6`].flatMap((path) => readTable(path, protocol).split('\n'))) {
      const [, hex, inode] = RECEIVER.exec(line) ?? [];
      if (hex === undefined) continue;
      const port: SocketPort = `${Number.parseInt(hex, 16)}/${protocol}`;
      found.set(port, (found.get(port) ?? new Set()).add(`socket:[${inode}]`));
    }
  }
  return found;
}

/** Who listens on these ports; without ports whose process cannot be seen. */
function listenersOn(ports: ReadonlySet<SocketPort>): ReadonlyMap<SocketPort, HostProcess> {
  const asked = [...receivers()].filter(([port]) => ports.has(port));
  const portOf = new Map(asked.flatMap(([port, sockets]) => [...sockets].map((socket) => [socket, port])));
  const found = new Map<SocketPort, HostProcess>();
  for (const pid of portOf.size === 0 ? [] : pids()) {
    for (const fd of descriptors(pid)) {
      const port = portOf.get(linkOf(fd) ?? '');
      const process = port === undefined || found.has(port) ? undefined : processOf(pid);
      if (port !== undefined && process !== undefined) found.set(port, process);
    }
  }
  return found;
}

function pids(): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

function descriptors(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => `/proc/${pid}/fd/${fd}`);
  } catch {
    // It has ended, or belongs to another user.
    return [];
  }
}

function processOf(pid: number): HostProcess | undefined {
  const executable = linkOf(`/proc/${pid}/exe`);
  const name = executable === undefined ? read(`/proc/${pid}/comm`)?.trim() : basename(executable);
  // Linux marks an executable that has been replaced on disk, as by an upgrade.
  return name === undefined ? undefined : { pid, name: name.replace(/ \(deleted\)$/, '') };
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
