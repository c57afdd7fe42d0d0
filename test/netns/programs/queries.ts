import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

const TICK_MS = 10;

/** After a standstill of this process, so that the backends' receive buffers hold what it makes up for. */
const MAX_PER_TICK = 100;

interface Questions {
  readonly host: string;
  readonly port: number;
  /** For an answer. A standstill of the machine must not use it up, nor the proxy's own for the first reply. */
  readonly patienceMs: number;
}

interface Running {
  asked: number;
  /** How many answers came from each backend. */
  readonly names: Record<string, number>;
  isOver: boolean;
  readonly done: Promise<unknown>;
}

const running = new Map<number, Running>();
let nextHandle = 1;

/** Asks a `udp-name` this often, until {@link stopQueries}: each time from a new port, and never twice. */
export function startQueries(args: Questions & { perSecond: number }): number {
  const questions: Promise<void>[] = [];
  const queries: Running = { asked: 0, names: {}, isOver: false, done: run() };
  async function run(): Promise<void> {
    await sleep(TICK_MS);
    const beganMs = performance.now();
    while (!queries.isOver) {
      const due = ((performance.now() - beganMs) * args.perSecond) / 1000;
      const upTo = Math.min(due, queries.asked + MAX_PER_TICK);
      for (; queries.asked < upTo; queries.asked++) questions.push(ask(args, queries));
      await sleep(TICK_MS);
    }
    await Promise.all(questions);
  }
  running.set(nextHandle, queries);
  return nextHandle++;
}

/** How many were asked by now. */
export function askedSoFar({ queries }: { queries: number }): number {
  return running.get(queries)!.asked;
}

/** Waits for the last answers. */
export async function stopQueries({
  queries,
}: {
  queries: number;
}): Promise<{ asked: number; answered: number; names: Readonly<Record<string, number>> }> {
  const { done, names } = running.get(queries)!;
  running.get(queries)!.isOver = true;
  await done;
  const { asked } = running.get(queries)!;
  running.delete(queries);
  return { asked, answered: Object.values(names).reduce((sum, count) => sum + count, 0), names };
}

async function ask({ host, port, patienceMs }: Questions, { names }: Running): Promise<void> {
  const socket = createSocket('udp4');
  socket.on('error', () => {});
  socket.bind();
  await once(socket, 'listening');
  const answer = once(socket, 'message', { signal: AbortSignal.timeout(patienceMs) });
  socket.send('question', port, host, () => {});
  try {
    const [reply] = await answer;
    const name = String(reply).split(' ')[0]!;
    names[name] = (names[name] ?? 0) + 1;
  } catch {
    // Lost.
  }
  socket.close();
}
