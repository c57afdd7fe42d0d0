import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import type { TestContext } from 'node:test';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import { endpointAt } from './harness.ts';

/** Two addresses of the node besides loopback. */
export const NODE_ADDRESSES = ['10.99.0.1', '10.99.0.2'] as const;

/** Swallows what is sent to it: its neighbour entry names a link-layer address that nobody has. */
export const BLACK_HOLE = '10.99.0.66';

/** The kernel says at once that there is no way. */
export const UNREACHABLE = '10.98.0.1';

export function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** A fresh namespace has nothing but a loopback interface that is down. A veth pair stands in for the network. */
export function buildNetwork(): void {
  ip('link', 'set', 'lo', 'up');
  ip('link', 'add', 'node0', 'type', 'veth', 'peer', 'name', 'net0');
  ip('link', 'set', 'node0', 'up');
  ip('link', 'set', 'net0', 'up');
  for (const address of NODE_ADDRESSES) ip('address', 'add', `${address}/24`, 'dev', 'node0');
  ip('neighbour', 'add', BLACK_HOLE, 'lladdr', '02:00:00:00:00:66', 'dev', 'node0', 'nud', 'permanent');
  ip('route', 'add', 'unreachable', UNREACHABLE);
}

/** Answers each datagram, and each stream at its end, with its own port and the length. */
const MEASURING = `
  const { createSocket } = require('node:dgram');
  const { createServer } = require('node:net');
  for (const port of [7001, 7002]) {
    const socket = createSocket({ type: 'udp6' });
    socket.on('message', ({ length }, from) => socket.send(port + ' ' + length, from.port, from.address));
    const server = createServer({ allowHalfOpen: true }, (stream) => {
      let length = 0;
      stream.on('data', (chunk) => (length += chunk.length)).on('error', () => {});
      stream.on('end', () => stream.end(port + ' ' + length));
    });
    server.listen(port, '::', () => socket.bind(port, () => console.log('ready')));
  }
  process.stdin.resume();
  process.stdin.on('end', () => process.exit());
`;

/**
 * Two endpoints of each family that answer with their port and the length of a datagram or stream, behind a router that
 * passes on no packet of more than 1280 bytes. Neither the endpoints nor this node know. `isSilent`: nor does ICMP tell
 * it.
 */
export async function endpointsBehindSmallMtu(
  t: TestContext,
  { isSilent = false } = {},
): Promise<Readonly<Record<'IPv4' | 'IPv6', readonly [NamedEndpoint, NamedEndpoint]>>> {
  const router = await ownNamespace(t, ['sh', '-c', 'echo ready; cat']);
  const far = await ownNamespace(t, [process.execPath, '-e', MEASURING]);
  ip('link', 'add', 'near0', 'type', 'veth', 'peer', 'name', 'near1', 'netns', String(router.pid));
  t.after(() => ip('link', 'delete', 'near0'));
  configure('near0', ['10.97.0.1/24', 'fd00:97::1/64'], ip);
  router.ip('link', 'set', 'lo', 'up');
  configure('near1', ['10.97.0.2/24', 'fd00:97::2/64'], router.ip);
  router.run('sh', '-c', 'echo 1 | tee /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding');
  router.ip(...'link add far0 type veth peer name far1 netns'.split(' '), String(far.pid));
  configure('far0', ['10.96.0.1/24', 'fd00:96::1/64'], router.ip);
  configure('far1', ['10.96.0.2/24', 'fd00:96::2/64'], far.ip);
  for (const [net, gateway, back] of [
    ['10.96.0.0/24', '10.97.0.2', '10.96.0.1'],
    ['fd00:96::/64', 'fd00:97::2', 'fd00:96::1'],
  ] as const) {
    ip('route', 'add', net, 'via', gateway);
    far.ip('route', 'add', 'default', 'via', back);
  }
  router.ip(...'route change 10.96.0.0/24 dev far0 mtu lock 1280'.split(' '));
  router.run('sh', '-c', 'echo 1280 > /proc/sys/net/ipv6/conf/far0/mtu');
  if (isSilent) {
    router.run('iptables', '-w', '-A', 'OUTPUT', '-p', 'icmp', '-j', 'DROP');
    router.run('ip6tables', '-w', '-A', 'OUTPUT', '-p', 'icmpv6', '--icmpv6-type', 'packet-too-big', '-j', 'DROP');
  }
  const both = (address: string) => [endpointAt(address, 7001), endpointAt(address, 7002)] as const;
  return { IPv4: both('10.96.0.2'), IPv6: both('fd00:96::2') };
}

function configure(link: string, addresses: readonly string[], tool: typeof ip): void {
  for (const address of addresses) {
    tool('address', 'add', address, 'dev', link, ...(address.includes(':') ? ['nodad'] : []));
  }
  tool('link', 'set', link, 'up');
}

/** A network namespace that lasts as long as the program, which ends with this process or the test. */
async function ownNamespace(t: TestContext, program: readonly string[]) {
  const child = spawn('unshare', ['--net', ...program], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  // `ready`, as all of these programs say.
  await once(child.stdout, 'data');
  const run = (...command: readonly string[]): void => {
    execFileSync('nsenter', ['--net', `--target=${child.pid}`, ...command], { stdio: ['ignore', 'ignore', 'inherit'] });
  };
  return { pid: child.pid, run, ip: (...args: string[]) => run('ip', ...args) };
}

/** Drops matching packets in a chain of the filter table, until the test ends or calls the returned function. */
export function drop(t: TestContext, chain: string, ...match: string[]): () => void {
  const change = (how: string) => execFileSync('iptables', ['-w', how, chain, ...match, '-j', 'DROP']);
  let isDropping = true;
  const admit = () => {
    if (isDropping) change('-D');
    isDropping = false;
  };
  change('-A');
  t.after(admit);
  return admit;
}

const PORT_RANGE = '/proc/sys/net/ipv4/ip_local_port_range';

/** Until the end of the test, the kernel takes local ports from these. */
export function narrowPorts(t: TestContext, first: number, last: number): void {
  const before = readFileSync(PORT_RANGE, 'utf8');
  writeFileSync(PORT_RANGE, `${first} ${last}`);
  t.after(() => writeFileSync(PORT_RANGE, before));
}
