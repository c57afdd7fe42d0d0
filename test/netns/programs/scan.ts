import { createSocket } from 'node:dgram';
import { connect } from 'node:net';

const PORTS = 65_535;
const AT_ONCE = 256;

/** Every port of a host that accepts a connection, or answers a datagram, in order. Silence counts as none. */
export async function answeringPorts(args: {
  host: string;
  protocol: 'tcp' | 'udp';
  timeoutMs: number;
}): Promise<number[]> {
  const ports = args.protocol === 'tcp' ? await accepting(args) : await answering(args);
  return ports.sort((a, b) => a - b);
}

async function accepting({ host, timeoutMs }: { host: string; timeoutMs: number }): Promise<number[]> {
  const found: number[] = [];
  let next = 1;
  const worker = async () => {
    while (next <= PORTS) {
      const port = next++;
      if (await accepts(host, port, timeoutMs)) found.push(port);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return found;
}

function accepts(host: string, port: number, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const settle = (isOpen: boolean) => {
      clearTimeout(timer);
      socket.resetAndDestroy();
      resolve(isOpen);
    };
    // After a standstill timers come first, and what has arrived meanwhile only then.
    const timer = setTimeout(() => setImmediate(settle, false), timeoutMs);
    socket.on('connect', () => settle(true));
    socket.on('error', () => settle(false));
  });
}

/**
 * Sends to every port from one socket: in batches, so that the receiver keeps up, and twice, because a datagram may get
 * lost. Waits after the last one.
 */
async function answering({ host, timeoutMs }: { host: string; timeoutMs: number }): Promise<number[]> {
  const found = new Set<number>();
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', (_, { port }) => found.add(port));
  for (let round = 1; round <= 2; round++) {
    for (let port = 1; port <= PORTS; port++) {
      const sent = new Promise((resolve) => socket.send('who', port, host, resolve));
      if (port % AT_ONCE === 0) await sent;
    }
  }
  await new Promise((resolve) => setTimeout(resolve, timeoutMs));
  socket.close();
  return [...found];
}
