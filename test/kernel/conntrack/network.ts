import { execFileSync } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import type { TestContext } from 'node:test';
import { type Address, type IpFamily, parseAddress } from '../../../src/model/address.ts';

export const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];

/** The node itself, a Service's address, and somebody whom the node only sends packets to. */
export const ADDRESSES: Record<IpFamily, Record<'node' | 'vip' | 'foreign', Address>> = {
  IPv4: {
    node: '192.168.50.10' as Address,
    vip: '10.96.0.10' as Address,
    foreign: '203.0.113.9' as Address,
  },
  IPv6: {
    node: 'fd00:50::10' as Address,
    vip: 'fd00:96::a' as Address,
    foreign: '2001:db8::9' as Address,
  },
};

export function run(program: string, ...args: readonly string[]): string {
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** A default route into a wire at whose end nobody listens; to be called in a network namespace of one's own. */
export function layWire(): void {
  for (const line of [
    'link set lo up',
    'link add eth0 type veth peer name eth1',
    'link set eth0 up',
    'link set eth1 up',
    'addr add 192.168.50.10/24 dev eth0',
    'addr add fd00:50::10/64 dev eth0 nodad',
    'neigh add 192.168.50.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent',
    'neigh add fd00:50::1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent',
    'route add default via 192.168.50.1',
    '-6 route add default via fd00:50::1',
  ]) {
    run('ip', ...line.split(' '));
  }
}

export function localAddresses(): Address[] {
  return Object.values(networkInterfaces())
    .flatMap((infos) => infos ?? [])
    .map(({ address }) => parseAddress(address))
    .filter((address) => address !== undefined);
}

/** The lines of the kernel's table, as it prints them itself. */
export function entries(...parts: readonly string[]): string[] {
  const lines = readFileSync('/proc/net/nf_conntrack', 'latin1').split('\n').filter(Boolean);
  return lines.filter((line) => parts.every((part) => line.includes(part)));
}

/** How the kernel prints an address: IPv6 in full. */
export function inFull(address: Address): string {
  if (!address.includes(':')) return address;
  const [head = '', tail = ''] = address.split('::');
  const groups = (text: string) => text.split(':').filter(Boolean);
  const missing = 8 - groups(head).length - groups(tail).length;
  const all = [...groups(head), ...new Array<string>(missing).fill('0'), ...groups(tail)];
  return all.map((group) => group.padStart(4, '0')).join(':');
}

/** A UDP socket that goes with the test. */
export async function udpSocket(t: TestContext, family: IpFamily, port = 0): Promise<Socket> {
  const socket = createSocket({ type: family === 'IPv4' ? 'udp4' : 'udp6', sendBufferSize: 4 << 20 });
  socket.on('error', () => {});
  socket.bind(port);
  await once(socket, 'listening');
  t.after(() => socket.close());
  return socket;
}

export function sendTo(socket: Socket, address: Address, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send('hello', port, address, (error) => (error === null ? resolve() : reject(error)));
  });
}
