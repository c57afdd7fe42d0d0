import { readdirSync, readFileSync } from 'node:fs';
import { congestionControlOf } from '../../src/sys/congestion-control.ts';
import { Memory } from '../../src/sys/memory.ts';
import { getpeername, getsockname, SOCKET_ADDRESS_BYTES } from '../../src/sys/socket.ts';
import { decodePort } from '../../src/sys/socket-address.ts';

/** One that this kernel has, and that a socket does not get by itself. */
export function otherCongestionControl(): string {
  const names = (file: string) => readFileSync(`/proc/sys/net/ipv4/${file}`, 'utf8').trim().split(' ');
  const [usual] = names('tcp_congestion_control');
  const other = names('tcp_available_congestion_control').find((name) => name !== usual);
  if (other === undefined) throw new Error(`this kernel has no congestion control but ${usual}`);
  return other;
}

/** Of this process's connected TCP sockets with this port at that end. */
export function congestionControlsAt(end: 'local' | 'peer', port: number): (string | undefined)[] {
  const address = new Memory(SOCKET_ADDRESS_BYTES);
  return readdirSync('/proc/self/fd').flatMap((name) => {
    const fd = Number(name);
    if (getpeername(fd, address) < 0 || (end === 'local' && getsockname(fd, address) < 0)) return [];
    return decodePort(address.bytes) === port ? [congestionControlOf(fd)] : [];
  });
}
