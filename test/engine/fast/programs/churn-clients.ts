import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, type Socket } from 'node:net';
import { endProcess } from '../../../../src/kernel/process.ts';
import { type BackendMode, PayloadCheck, payload } from './churn-payload.ts';

/*
 * Clients of all manners. Arguments: how many connections, the address, the UDP port, the TCP ports. Reports while it
 * runs, and `done` at the end.
 */
const [, , count, host = '', ...numbers] = process.argv;
const connections = Number(count);
const [udpPort = 0, ...ports] = numbers.map(Number);
const AT_ONCE = 150;
/** A datagram without an answer by then was for a backend that is dead. */
const LOST_MS = 1000;

/** `whole`: answered completely; `cut`: ended earlier; `strangers`, `strangeAnswers`: got what it had not sent. */
const seen = { done: 0, whole: 0, cut: 0, refused: 0, strangers: 0, datagrams: 0, answers: 0, strangeAnswers: 0 };

/** `choke` sends much and reads nothing of the answer, so that bytes are stuck in the middle when it resets. */
type Manner = 'choke' | 'echo' | 'bulk' | 'reset' | 'vanish' | 'backend-reset' | 'backend-ends';

const MANNERS: readonly (readonly [share: number, manner: Manner])[] = [
  [0.002, 'choke'],
  [0.55, 'echo'],
  [0.65, 'bulk'],
  [0.75, 'reset'],
  [0.8, 'vanish'],
  [0.9, 'backend-reset'],
  [1, 'backend-ends'],
];

function manner(): Manner {
  const draw = Math.random();
  return MANNERS.find(([share]) => draw < share)?.[1] ?? 'echo';
}

const MODES: Partial<Record<Manner, BackendMode>> = { 'backend-reset': 'r', 'backend-ends': 'c' };

function bodyBytes(how: Manner): number {
  if (how === 'choke') return 24 << 20;
  return how === 'bulk' ? 60_000 + Math.floor(Math.random() * 300_000) : Math.floor(Math.random() * 400);
}

function choke(socket: Socket, sent: Buffer): void {
  socket.pause();
  socket.write(sent);
  setTimeout(() => socket.resetAndDestroy(), 200 + Math.random() * 200);
}

function one(): Promise<void> {
  return new Promise((resolve) => {
    const how = manner();
    const sent = payload(randomBytes(8).toString('hex'), MODES[how] ?? 'e', bodyBytes(how));
    const check = new PayloadCheck();
    const port = ports[Math.floor(Math.random() * ports.length)] ?? 0;
    const socket = connect({ port, host, allowHalfOpen: true }, () => {
      if (how === 'choke') choke(socket, sent);
      else if (how === 'vanish') socket.destroy();
      else if (how === 'reset') socket.write(sent);
      else socket.end(sent);
    });
    socket.on('data', (chunk: Buffer) => {
      const at = check.receivedBytes;
      check.add(chunk);
      if (sent.compare(chunk, 0, chunk.length, at, at + chunk.length) !== 0) {
        seen.strangers++;
        socket.destroy();
      } else if (how === 'reset') socket.resetAndDestroy();
    });
    socket.on('end', () => socket.end());
    // A reset may come before Node has noticed that it is connected: only this means that nobody listens.
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'ECONNREFUSED') seen.refused++;
    });
    socket.on('close', () => {
      seen.done++;
      if (check.receivedBytes === sent.length) seen.whole++;
      else seen.cut++;
      resolve();
    });
  });
}

/** Tokens by the local port that they were sent from: a late answer reaches whoever has the port by then. */
const sentFrom = new Map<number, Set<string>>();

/** A datagram socket of its own, so that descriptors change hands between protocols too. */
function oneDatagram(): Promise<void> {
  return new Promise((resolve) => {
    const token = randomBytes(8).toString('hex');
    const socket = createSocket('udp4');
    const over = (): void => {
      clearTimeout(timer);
      socket.close();
      resolve();
    };
    const timer = setTimeout(over, LOST_MS);
    let own = new Set<string>();
    seen.datagrams++;
    socket.on('error', () => {});
    socket.on('message', (datagram) => {
      if (String(datagram) === token) {
        seen.answers++;
        over();
      } else if (!own.has(String(datagram))) {
        seen.strangeAnswers++;
      }
    });
    socket.connect(udpPort, host, () => {
      const { port } = socket.address();
      own = sentFrom.get(port) ?? own;
      sentFrom.set(port, own.add(token));
      socket.send(token, () => {});
    });
  });
}

process.on('disconnect', () => void endProcess(0));
const report = setInterval(() => process.send?.(seen), 100);
let begun = 0;
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    for (let own = 1; begun++ < connections; own++) {
      await one();
      if (own % 10 === 0) await oneDatagram();
    }
  }),
);
clearInterval(report);
process.send?.({ ...seen, isOver: true });
