import { setTimeout as sleep } from 'node:timers/promises';
import { close } from '../../../src/sys/descriptor.ts';
import { Memory } from '../../../src/sys/memory.ts';
import { AF_INET, connect, SOCK_DGRAM, send, socket } from '../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../src/sys/socket-address.ts';

const TICK_MS = 10;

interface Flood {
  sent: number;
  isOver: boolean;
  readonly done: Promise<unknown>;
}

const floods = new Map<number, Flood>();
let nextHandle = 1;

/** Sends datagrams this often, each from a fresh port, to these ports in turn, until {@link stopFlood}. */
export function startFlood(args: { host: string; ports: readonly number[]; perSecond: number }): number {
  const targets = args.ports.map((port) => encodeSocketAddress(args.host, port));
  const question = new Memory(64);
  const flood: Flood = { sent: 0, isOver: false, done: run() };
  async function run(): Promise<void> {
    await sleep(TICK_MS);
    let lastMs = performance.now();
    while (!flood.isOver) {
      const nowMs = performance.now();
      // Not more after a standstill.
      const due = Math.ceil((Math.min(nowMs - lastMs, 5 * TICK_MS) * args.perSecond) / 1000);
      lastMs = nowMs;
      for (let i = 0; i < due; i++) {
        const fd = socket(AF_INET, SOCK_DGRAM);
        connect(fd, targets[flood.sent++ % targets.length] as Memory);
        send(fd, question, 0, question.length);
        close(fd);
      }
      await sleep(TICK_MS);
    }
  }
  floods.set(nextHandle, flood);
  return nextHandle++;
}

export async function stopFlood({ flood }: { flood: number }): Promise<{ sent: number }> {
  const running = floods.get(flood) as Flood;
  running.isOver = true;
  await running.done;
  floods.delete(flood);
  return { sent: running.sent };
}
