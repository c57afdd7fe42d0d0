import { createSocket } from 'node:dgram';
import { connect } from 'node:net';

const AT_ONCE = 256;

interface Scan {
  readonly host: string;
  /** From the first to the last of each. */
  readonly ports: readonly (readonly [first: number, last: number])[];
  readonly timeoutMs: number;
}

/** Every port of these that accepts a connection, or answers a datagram, in order. Silence counts as none. */
export async function answeringPorts({
  protocol,
  ...scan
}: Scan & { readonly protocol: 'tcp' | 'udp' }): Promise<number[]> {
  const ports = protocol === 'tcp' ? await accepting(scan) : await answering(scan);
  return ports.sort((a, b) => a - b);
}

function* each(ports: Scan['ports']): Iterable<number> {
  for (const [first, last] of ports) for (let port = first; port <= last; port++) yield port;
}

async function accepting({ host, ports, timeoutMs }: Scan): Promise<number[]> {
  const found: number[] = [];
  const left = each(ports)[Symbol.iterator]();
  const worker = async () => {
    for (let next = left.next(); !next.done; next = left.next()) {
      if (await accepts(host, next.value, timeoutMs)) found.push(next.value);
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
async function answering({ host, ports, timeoutMs }: Scan): Promise<number[]> {
  const found = new Set<number>();
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', (_, { port }) => found.add(port));
  for (let round = 1; round <= 2; round++) {
    let count = 0;
    for (const port of each(ports)) {
      const sent = new Promise((resolve) => socket.send('who', port, host, resolve));
      if (++count % AT_ONCE === 0) await sent;
    }
  }
  await new Promise((resolve) => setTimeout(resolve, timeoutMs));
  socket.close();
  return [...found];
}
