import { accessSync, constants, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { basename } from 'node:path';
import { listIfThere, readIfThere } from '../kernel/files.ts';
import type { Exec } from '../kernel/iptables/exec.ts';
import { ListeningSockets, readTable, receiving } from '../kernel/local-ports.ts';
import { isTrusted, type NodeHolder, nodeHolder } from '../kernel/node-claim.ts';
import type { Address } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import type { Clock } from '../util/clock.ts';

interface HostProcess {
  readonly pid: number;
  /** The name of its executable, or its name in `ps` when the executable is not readable. */
  readonly name: string;
}

/** `30080/TCP`: at any address. */
export type SocketPort = `${number}/${ProxiedProtocol}`;

/** All that the checks see of this machine. */
export type Machine = ReturnType<typeof thisMachine>;

/** `undefined` also when the file has no whole number, such as `max` in cgroups. */
export function numberIn({ read }: Pick<Machine, 'read'>, path: string): number | undefined {
  const text = read(path)?.trim() ?? '';
  return /^-?\d+$/.test(text) ? Number(text) : undefined;
}

export function thisMachine(exec: Exec, clock: Clock) {
  const sockets = new ListeningSockets(clock);
  const isListening = (address: Address, port: number, protocol: ProxiedProtocol) =>
    sockets.isListening(address, port, protocol);
  const read = readIfThere;
  return { exec, read, isWritable, interfaces, neighbours, servingProxy, tryToBind, isListening, listeners, ownersOf };
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
  const table = readIfThere('/proc/net/dev') ?? '';
  return [...Object.keys(networkInterfaces()), ...[...table.matchAll(/^\s*([^\s:]+):/gm)].map(([, name = '']) => name)];
}

/** Other visible processes in our network namespace. */
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

/** Every port at which a program receives. */
function listeners(): ReadonlySet<SocketPort> {
  return new Set(receivers().values());
}

/** `nginx (1234)`: the program that receives at each of these ports. Ports whose process is not visible are absent. */
function ownersOf(ports: ReadonlySet<SocketPort>): ReadonlyMap<SocketPort, string> {
  const portOf = new Map([...receivers()].filter(([, port]) => ports.has(port)));
  const owners = new Map<SocketPort, string>();
  for (const pid of portOf.size === 0 ? [] : pids()) {
    for (const fd of listIfThere(`/proc/${pid}/fd`)) {
      const port = portOf.get(linkOf(`/proc/${pid}/fd/${fd}`) ?? '');
      if (port !== undefined && !owners.has(port)) owners.set(port, `${processOf(pid)?.name} (${pid})`);
    }
  }
  return owners;
}

/** The port of each receiving socket. The keys are `socket:[inode]`, as in the links of /proc/PID/fd. */
function receivers(): ReadonlyMap<string, SocketPort> {
  const found = new Map<string, SocketPort>();
  for (const protocol of ['TCP', 'UDP'] as const) {
    for (const file of [protocol.toLowerCase(), `${protocol.toLowerCase()}6`]) {
      for (const { local, inode } of receiving(readTable(`/proc/net/${file}`, protocol), protocol)) {
        found.set(`socket:[${inode}]`, `${Number.parseInt(local.slice(local.lastIndexOf(':') + 1), 16)}/${protocol}`);
      }
    }
  }
  return found;
}

function pids(): readonly number[] {
  return listIfThere('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

function processOf(pid: number): HostProcess | undefined {
  const executable = linkOf(`/proc/${pid}/exe`);
  const name = executable === undefined ? readIfThere(`/proc/${pid}/comm`)?.trim() : basename(executable);
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
