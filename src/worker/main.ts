import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { systemClock } from '../host/system-clock.ts';
import { read } from '../sys/descriptor.ts';
import { EPOLLIN } from '../sys/epoll.ts';
import { Memory } from '../sys/memory.ts';
import { must } from '../sys/sys-error.ts';
import { Engine } from './engine.ts';
import type { Command, Report, WorkerSetup } from './protocol.ts';

/*
 * The thread of one worker. It waits in its own epoll and not in Node's loop, so a command is a message and a write to an
 * eventfd in that epoll. Now and then it lets Node's loop run, for V8 has its own tasks there (parts of garbage collection).
 */

const YIELD_MS = 1000;

if (parentPort === null) throw new Error('this is the entry of a worker thread');
const port = parentPort;
const setup = workerData as WorkerSetup;

const report = (message: Report): void => port.postMessage(message);
const engine = new Engine(setup, { clock: systemClock, random: Math.random, report });
const { loop } = engine;
let isStopping = false;

const wakeups = new Memory(8);
const onWakeup = (): void => {
  // First, so that a command that comes from now on wakes again.
  read(setup.wakeFd, wakeups, 0, 8);
  for (;;) {
    const received = receiveMessageOnPort(port);
    if (received === undefined) return;
    const command: Command = received.message;
    if (command.kind === 'shutdown') isStopping = true;
    else engine.obey(command);
  }
};
must('epoll_ctl', loop.watch(setup.wakeFd, EPOLLIN, { onEvents: onWakeup, onShutdown: () => {} }));

const run = (): void => {
  const began = loop.nowMs;
  // Nothing happens while it waits, so the wait after which it yields may be as long as it likes.
  while (!isStopping && loop.nowMs - began < YIELD_MS) loop.turn(-1);
  if (isStopping) engine.shutdown();
  else setImmediate(run);
};

report({ kind: 'ready' });
run();
