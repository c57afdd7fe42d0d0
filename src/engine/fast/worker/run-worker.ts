import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { Clock } from '../../../util/clock.ts';
import { Engine } from './engine.ts';
import { LONGEST_TURN_MS } from './protocol.ts';

/**
 * Makes the thread that it is called in a worker, until it is told to shut down.
 *
 * The thread waits in its own epoll and not in Node's loop, so a command is a message and a write to an eventfd in that
 * epoll. Once a second it lets Node's loop run: V8 leaves tasks of its own there, and a process that exits waits for its
 * threads to come by.
 */
export function runWorker(clock: Clock): void {
  if (parentPort === null) throw new Error('a worker runs in a worker thread');
  const port = parentPort;
  const engine = new Engine(workerData, {
    clock,
    random: Math.random,
    receive: () => receiveMessageOnPort(port)?.message,
    report: (reports) => port.postMessage(reports),
  });
  const { loop } = engine;
  const run = (): void => {
    const beganMs = loop.nowMs;
    while (!engine.isStopping && loop.nowMs - beganMs < LONGEST_TURN_MS) engine.turn(LONGEST_TURN_MS);
    if (engine.isStopping) engine.shutdown();
    else setImmediate(run);
  };
  run();
}
