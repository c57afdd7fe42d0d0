import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { systemClock } from '../host/system-clock.ts';
import { Engine } from './engine.ts';
import { LONGEST_TURN_MS } from './protocol.ts';

/*
 * The thread of one worker. It waits in its own epoll and not in Node's loop, so a command is a message and a write to an
 * eventfd in that epoll. Once a second it lets Node's loop run: V8 leaves tasks of its own there, and a process that exits
 * waits for its threads to come by.
 */

if (parentPort === null) throw new Error('this is the entry of a worker thread');
const port = parentPort;

const engine = new Engine(workerData, {
  clock: systemClock,
  random: Math.random,
  receive: () => receiveMessageOnPort(port)?.message,
  report: (report) => port.postMessage(report),
});

const run = (): void => {
  const { loop } = engine;
  const beganMs = loop.nowMs;
  while (!engine.isStopping && loop.nowMs - beganMs < LONGEST_TURN_MS) loop.turn(LONGEST_TURN_MS);
  if (engine.isStopping) engine.shutdown();
  else setImmediate(run);
};

run();
