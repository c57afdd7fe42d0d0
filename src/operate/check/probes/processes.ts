import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { readTable } from '../../../kernel/local-ports.ts';
import type { ProxiedProtocol } from '../../../model/service-port.ts';
import type { HostProcess, SocketPort } from '../host-process.ts';

/**
 * `sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode …`, of a socket that receives
 * from anybody: 0A is a listener of TCP, 07 an unconnected socket of UDP.
 */
const RECEIVER = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ (?:0A|07) \S+ \S+ \S+\s+\d+\s+\d+ (\d+) /;

const PROTOCOLS: readonly ProxiedProtocol[] = ['TCP', 'UDP'];

/** The processes that can be seen from here and share our network. */
export function neighbours(): readonly HostProcess[] {
  const ours = linkOf('/proc/self/ns/net');
  return pids().flatMap((pid) => {
    if (pid === process.pid || linkOf(`/proc/${pid}/ns/net`) !== ours) return [];
    return processOf(pid) ?? [];
  });
}

/** Who listens on these ports; nothing of those where nobody does, or somebody who cannot be seen from here. */
export function listenersOn(ports: ReadonlySet<SocketPort>): ReadonlyMap<SocketPort, HostProcess> {
  const sockets = new Map(
    PROTOCOLS.flatMap((protocol) => [...receivers(protocol)]).filter(([, port]) => ports.has(port)),
  );
  const found = new Map<SocketPort, HostProcess>();
  if (sockets.size === 0) return found;
  for (const pid of pids()) {
    for (const fd of descriptors(pid)) {
      const port = sockets.get(linkOf(fd) ?? '');
      const process = port === undefined || found.has(port) ? undefined : processOf(pid);
      if (port !== undefined && process !== undefined) found.set(port, process);
    }
  }
  return found;
}

/** As links of descriptors name them, with their ports. */
function* receivers(protocol: ProxiedProtocol): Generator<readonly [socket: string, port: SocketPort]> {
  for (const file of [protocol.toLowerCase(), `${protocol.toLowerCase()}6`]) {
    for (const line of readTable(`/proc/net/${file}`, protocol).split('\n')) {
      const [, port, inode] = RECEIVER.exec(line) ?? [];
      if (port !== undefined) yield [`socket:[${inode}]`, `${Number.parseInt(port, 16)}/${protocol}`];
    }
  }
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
    // It has ended, or is another user's.
    return [];
  }
}

function processOf(pid: number): HostProcess | undefined {
  try {
    const executable = linkOf(`/proc/${pid}/exe`);
    // What has been replaced on disk, as by an upgrade, has that behind its name.
    const name = executable === undefined ? readFileSync(`/proc/${pid}/comm`, 'utf8').trim() : basename(executable);
    return { pid, name: name.replace(/ \(deleted\)$/, '') };
  } catch {
    // It has ended.
    return undefined;
  }
}

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
